// The wire as a program in Node sees it, with nothing but what Node has: fetch, and its WebSocket.
// node checks.mjs URL PSQL DSN: runs every check and prints {"name", "error"} of each, a line each.
import { spawn } from "node:child_process";

const [server, psql, dsn] = process.argv.slice(2);
const ws = server.replace(/^http/, "ws");
const checks = [];
const check = (name, run) => checks.push([name, run]);

function sql(text) {
  return new Promise((resolve, reject) => {
    const child = spawn(psql, ["-XqAt", "-v", "ON_ERROR_STOP=1", "-d", dsn, "-c", text]);
    let said = "", wrong = "";
    child.stdout.on("data", (data) => (said += data));
    child.stderr.on("data", (data) => (wrong += data));
    child.on("close", (code) => (code ? reject(new Error(wrong)) : resolve(said.trim())));
  });
}

function equal(found, expected, what = "") {
  const [a, b] = [JSON.stringify(found), JSON.stringify(expected)];
  if (a !== b) throw new Error(`${what} ${a} is not ${b}`);
}

const pause = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

async function until(test, seconds = 20) {
  const end = Date.now() + 1000 * seconds;
  for (;;) {
    try {
      return await test();
    } catch (error) {
      if (Date.now() > end) throw error;
      await pause(50);
    }
  }
}

class Stream {
  frames = [];
  waiting = [];
  constructor(slot) {
    this.socket = new WebSocket(`${ws}/v1/lr/stream?slotName=${slot}`);
    this.closed = new Promise((resolve) => (this.socket.onclose = ({ code, reason }) => resolve({ code, reason })));
    this.opened = new Promise((resolve, reject) => {
      this.socket.onopen = () => resolve(this);
      this.socket.onerror = () => reject(new Error("no stream"));
    });
    this.socket.onmessage = ({ data }) => (this.waiting.length ? this.waiting.shift()(data) : this.frames.push(data));
  }
  async text(seconds = 20) {
    if (this.frames.length) return this.frames.shift();
    const late = pause(1000 * seconds).then(() => Promise.reject(new Error("no frame came")));
    return Promise.race([late, this.closed.then((how) => Promise.reject(new Error(JSON.stringify(how)))),
      new Promise((resolve) => this.waiting.push(resolve))]);
  }
  async next() {
    return JSON.parse(await this.text());
  }
  ack(lsn) {
    this.socket.send(JSON.stringify({ lsn }));
  }
  async end() {
    this.socket.close(1000);
    return this.closed;
  }
}

async function init() {
  const answer = await fetch(`${server}/v1/init`);
  equal(answer.status, 200);
  return (await answer.json()).slotName;
}

async function page(body) {
  const answer = await fetch(`${server}/v1/snapshot/data`, { method: "POST", body: JSON.stringify(body) });
  return { status: answer.status, text: await answer.text() };
}

const stream = (slot) => new Stream(slot).opened;
// Once the reader before has been let go: who comes too early is told so by a close.
const again = (slot) => until(async () => {
  const opened = await stream(slot);
  const refused = await Promise.race([opened.closed, pause(200)]);
  if (refused) throw new Error(JSON.stringify(refused));
  return opened;
});
const position = (slot) => sql(`select confirmed_flush_lsn from pg_replication_slots where slot_name = '${slot}'`);
const reaches = (slot, lsn) => until(async () => equal(await position(slot), lsn, "confirmed"), 2);

let tables = 0;
async function table(columns = "id serial primary key, name text", rows = "") {
  const name = `node_${process.pid}_${++tables}`;
  await sql(`create table ${name} (${columns}); ${rows && `insert into ${name} ${rows}`}`);
  return name;
}

check("init answers with nothing but the name of a new slot", async () => {
  const answer = await fetch(`${server}/v1/init`);
  const body = await answer.json();
  equal([answer.status, Object.keys(body)], [200, ["slotName"]]);
  if (!/^delta_(gigantic|scold|greasy|shaggy|wasteful|few|face|pet|ablaze|mundane)\d{1,2}$/.test(body.slotName)) {
    throw new Error(body.slotName);
  }
  const found = `select plugin, slot_type from pg_replication_slots where slot_name = '${body.slotName}'`;
  equal(await sql(found), "pgoutput|logical");
  if ((await init()) === body.slotName) throw new Error("the same again");
  equal(await sql(found), "pgoutput|logical", "after a second init");
});

check("the snapshot pages with and without an order", async () => {
  const name = await table("id int primary key, name text", "select n, 'name' || n from generate_series(1, 300) n");
  const slotName = await init();
  const first = await page({ slotName, table: name, offset: 0, limit: 2 });
  equal(first.status, 200);
  equal(JSON.parse(first.text).map((row) => Object.keys(row)), [["id", "name"], ["id", "name"]]);
  const pages = await Promise.all([0, 1, 2, 3].map((n) =>
    page({ table: name, offset: 100 * n, limit: 100, order_by: { column: "id", order: "desc" } })));
  const ids = pages.flatMap(({ text }) => JSON.parse(text)).map((row) => row.id);
  equal(ids, Array.from({ length: 300 }, (_, n) => 300 - n));
  equal(pages[3].text, "[]", "beyond the end");
});

check("wrong bodies, tables and sessions get their errors and spoil nothing", async () => {
  const name = await table("id int primary key", "values (1)");
  const slotName = await init();
  const good = { slotName, table: name, offset: 0, limit: 1 };
  const invalid = { status: 400, text: '{"error":"invalid input JSON"}' };
  equal(await page({ ...good, table: "" }), invalid);
  equal(await page({ ...good, limit: "1" }), invalid);
  equal(await page({ ...good, offset: -1 }), invalid);
  equal(await page({ ...good, order_by: { order: "ASC" } }),
    { status: 400, text: `{"error":"required field 'column' missing in 'order_by'"}` });
  equal(await page({ ...good, order_by: { column: "id", order: "x" } }),
    { status: 400, text: `{"error":"order_by order direction can only be either 'ASC' or 'DESC'"}` });
  const failed = { status: 500, text: '{"error":"unable to get snapshot data"}' };
  for (const wrong of ["no_such", "(select 1) q", `${name}; drop table ${name}`]) {
    equal(await page({ ...good, table: wrong }), failed);
  }
  equal(await page({ ...good, slotName: "delta_none1" }), { status: 503,
    text: '{"error":"snapshot not available: call /init to initialize a new slot and snapshot"}' });
  const all = await Promise.all(Array.from({ length: 20 }, () => page(good)));
  equal(all, Array(20).fill({ status: 200, text: '[{"id":1}]' }));
});

check("what is committed after init is on the stream and not in the snapshot", async () => {
  const name = await table("id int primary key", "values (1)");
  const slotName = await init();
  await sql(`insert into ${name} values (2)`);
  equal(await page({ slotName, table: name, offset: 0, limit: 9 }), { status: 200, text: '[{"id":1}]' });
  const line = await stream(slotName);
  equal((await line.next()).change.map((change) => change.columnvalues), [[2]]);
  await line.end();
});

check("frames have the keys of wal2json, in its order", async () => {
  const name = await table();
  const line = await stream(await init());
  await sql(`insert into ${name} (name) values ('a'), ('b'); `);
  await sql(`begin; update ${name} set name = 'c' where id = 1; delete from ${name} where id = 2; truncate ${name}; end`);
  const row = `"schema":"public","table":"${name}"`;
  const columns = `"columnnames":["id","name"],"columntypes":["integer","text"],"columnvalues"`;
  const old = (id) => `"oldkeys":{"keynames":["id"],"keytypes":["integer"],"keyvalues":[${id}]}`;
  const first = await line.text();
  equal(first.replace(/"0*[0-9A-F]+\/[0-9A-F]+"/, "LSN"), '{"nextlsn":LSN,"change":[' +
    `{"kind":"insert",${row},${columns}:[1,"a"]},{"kind":"insert",${row},${columns}:[2,"b"]}]}`);
  const second = JSON.parse(await line.text());
  equal(JSON.stringify(second.change), `[{"kind":"update",${row},${columns}:[1,"c"],${old(1)}},` +
    `{"kind":"delete",${row},${old(2)}}]`);
  equal(second.truncated, [{ schema: "public", table: name }]);
  await line.end();
});

check("an acknowledgement moves the slot, and only what it does not cover comes again", async () => {
  const name = await table();
  const slot = await init();
  let line = await stream(slot);
  await sql(`insert into ${name} (name) values ('a')`);
  await sql(`insert into ${name} (name) values ('b')`);
  const first = await line.next();
  const second = await line.text();
  line.ack(first.nextlsn);
  await reaches(slot, first.nextlsn);
  await line.end();
  line = await again(slot);
  equal(await line.text(), second, "as it was");
  line.ack(JSON.parse(second).nextlsn);
  await reaches(slot, JSON.parse(second).nextlsn);
  await line.end();
});

check("acknowledgements that mean nothing are passed over", async () => {
  const name = await table();
  const slot = await init();
  const line = await stream(slot);
  const before = await position(slot);
  for (const lsn of ["garbage", "FFFFFFFF/0", "0/0", "12345678901234567890"]) line.ack(lsn);
  line.socket.send("{}");
  await sql(`insert into ${name} (name) values ('alive')`);
  equal((await line.next()).change[0].columnvalues[1], "alive");
  equal(await position(slot), before);
  line.socket.send('{"lsn":5}');
  equal((await line.closed).code, 1008);
});

check("unknown and busy slots are refused in time", async () => {
  equal((await (await stream("delta_none1")).closed).code, 4404);
  const name = await table("id int primary key");
  const slot = await init();
  const line = await stream(slot);
  await sql(`insert into ${name} values (1)`);
  await line.next();
  const second = await (await stream(slot)).closed;
  equal(second.code, 4409);
  await sql(`insert into ${name} values (2)`);
  equal((await line.next()).change[0].columnvalues, [2], "the first goes on");
  await line.end();
});

check("tables without a key and schema changes leave the stream alive", async () => {
  const name = await table("note text");
  const line = await stream(await init());
  await sql(`insert into ${name} values ('a')`);
  equal((await line.next()).change[0].columnvalues, ["a"]);
  await sql(`update ${name} set note = 'b'`);
  await sql(`alter table ${name} add more int; insert into ${name} values ('c', 3)`);
  let frame;
  do frame = await line.next(); while (!frame.change.some((change) => change.kind === "insert"));
  equal(frame.change[0].columnnames, ["note", "more"]);
  await line.end();
});

check("their test of the WebSocket passes", async () => {
  const name = await table();
  const slot = await init();
  const line = await stream(slot);
  await sql(`insert into ${name} (name) values ('name4')`);
  let frame = await line.next();
  equal([frame.change[0].kind, frame.change[0].columnvalues[1]], ["insert", "name4"]);
  line.ack(frame.nextlsn);
  await reaches(slot, frame.nextlsn);
  await sql(`update ${name} set name = 'name5' where name = 'name4'`);
  frame = await line.next();
  equal(frame.change[0].kind, "update");
  line.ack(frame.nextlsn);
  await reaches(slot, frame.nextlsn);
  equal((await line.end()).code, 1000);
});

for (const [name, run] of checks) {
  const error = await run().then(() => null, (failed) => String(failed.stack ?? failed));
  console.log(JSON.stringify({ name, error }));
}
process.exit(0);
