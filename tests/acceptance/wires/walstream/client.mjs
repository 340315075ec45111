// walstream's client in Node, as its example is: no first message, each event acknowledged, back two seconds after any end.
// node client.mjs MODULES PROTO ADDRESS AGAIN_MS LONGS: prints a line for each event; LONGS is String, or Number as its
// client in TypeScript reads them.
import { createRequire } from "node:module";

const [modules, proto, address, again, longs] = process.argv.slice(2);
const load = createRequire(`${modules}/`);
const grpc = load("@grpc/grpc-js");
const loader = load("@grpc/proto-loader");
const kinds = { String, Number };
const options = { keepCase: true, longs: kinds[longs], enums: String, defaults: true, oneofs: true };
const { plugin } = grpc.loadPackageDefinition(loader.loadSync(proto, options));

function connect() {
  const client = new plugin.PluginService(address, grpc.credentials.createInsecure());
  const call = client.Session();
  let over = false;
  const ended = () => {
    if (over) return;
    over = true;
    console.log("Stream ended");
    client.close();
    setTimeout(connect, Number(again));
  };
  console.log("Connected, listening for events...");
  call.on("metadata", () => console.log("Headers"));
  call.on("data", (message) => {
    if (!message.msg) return;
    const event = message[message.msg];
    if (longs === "Number" && !Number.isSafeInteger(event.pg_lsn)) throw new Error(`${event.pg_lsn} is not safe`);
    const said = `${message.msg.toUpperCase()} ${event.schema}.${event.table}`;
    console.log(event.json_payload === undefined ? said : `${said}: ${event.json_payload}`);
    call.write({ ack: { pg_lsn: event.pg_lsn } });
  });
  call.on("error", (error) => {
    console.log(`Stream error: ${error.code} ${error.details}`);
    ended();
  });
  call.on("end", ended);
}

connect();
