// Prints changes as they come over WebSocket, and acknowledges them; after a break it continues there.
const name = process.argv[2] ?? "printer";
const server = (process.env.PIPELINE_URL ?? "http://127.0.0.1:12312").replace(/^http/, "ws");
const protocols = ["pipeline.v1"];
if (process.env.PIPELINE_API_TOKEN) {
  protocols.push("bearer." + Buffer.from(process.env.PIPELINE_API_TOKEN).toString("base64url"));
}
const HOPELESS = [1008, 4404, 4410]; // wrong use, no such consumer, no longer in the log

function connect(delay) {
  const stream = new WebSocket(`${server}/v1/consumers/${name}/stream`, protocols);
  stream.onmessage = ({ data }) => {
    const frame = JSON.parse(data);
    if (frame.type === "ready") delay = 250;
    if (frame.type === "error") console.error(frame.title);
    if (frame.type !== "events") return;
    for (const event of frame.data) {
      console.log(event.seq, event.action, event.source_table_name, event.record_pk);
    }
    stream.send(JSON.stringify({ ack: frame.data.at(-1).seq })); // what was dealt with does not come again
  };
  stream.onclose = ({ code }) => {
    if (HOPELESS.includes(code)) process.exit(1);
    setTimeout(connect, delay, Math.min(2 * delay, 5000));
  };
}

connect(250);
