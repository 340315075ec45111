// The same load for k6: k6 run docs/examples/async_users/load.js
import http from "k6/http";
import { check } from "k6";

export const options = {
  scenarios: { users: { executor: "shared-iterations", vus: 16, iterations: 10000, maxDuration: "5m" } },
  thresholds: { http_req_failed: ["rate==0"], checks: ["rate==1"] },
};

export default function () {
  const number = `${__VU}-${__ITER}`;
  const body = JSON.stringify({ name: `user ${number}`, email: `user${number}@example.com` });
  const answer = http.post(`${__ENV.URL || "http://127.0.0.1:8000"}/async-users`, body, {
    headers: { "Content-Type": "application/json" },
  });
  check(answer, { "is made": (each) => each.status === 201 });
}
