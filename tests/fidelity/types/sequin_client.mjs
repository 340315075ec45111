// A client of Sequin's HTTP pull consumers in Node, with nothing but what Node has.
// node sequin_client.mjs URL CONSUMER EXPECTED: receives all there is, acknowledges it, and prints how many messages it
// got, after a line for each value that is not as the file has it: {table: {id: {column: value}}}.
import { readFileSync } from "node:fs";

const [server, consumer, file] = process.argv.slice(2);
const expected = JSON.parse(readFileSync(file, "utf8"));
const headers = { "content-type": "application/json", authorization: "Bearer any" };

async function post(what, body) {
  const url = `${server}/api/http_pull_consumers/${consumer}/${what}`;
  const answer = await fetch(url, { method: "POST", headers, body: JSON.stringify(body) });
  if (answer.status !== 200) throw new Error(`${answer.status} ${await answer.text()}`);
  return answer.json();
}

// With a list of its own: a document of thousands of lists in each other is too deep for calls.
function same(one, other) {
  const left = [[one, other]];
  while (left.length) {
    const [a, b] = left.pop();
    if (Object.is(a, b)) continue;
    if (a === null || b === null || typeof a !== "object" || typeof b !== "object") return false;
    const keys = Object.keys(a);
    if (Array.isArray(a) !== Array.isArray(b) || keys.length !== Object.keys(b).length) return false;
    for (const key of keys) {
      if (!Object.hasOwn(b, key)) return false;
      left.push([a[key], b[key]]);
    }
  }
  return true;
}

let count = 0;
for (;;) {
  const { data } = await post("receive", { max_batch_size: 40 });
  if (!data.length) break;
  for (const { data: { record, metadata } } of data) {
    const row = expected[metadata.table_name][record.id];
    for (const column of Object.keys({ ...row, ...record })) {
      if (column !== "id" && !same(record[column], row[column])) console.log(metadata.table_name, record.id, column);
    }
  }
  count += data.length;
  const answer = await post("ack", { ack_ids: data.map((message) => message.ack_id) });
  if (!same(answer, { success: true })) console.log("acknowledged:", JSON.stringify(answer));
}
console.log(count);
