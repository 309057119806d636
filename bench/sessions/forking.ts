import { randomBytes } from "node:crypto";
import { silentLogger } from "../../src/base/log.ts";
import { connect } from "../../src/runtime/connect.ts";
import { startPod } from "../../src/runtime/start-pod.ts";
import type { SessionService } from "../../src/sessions/service.ts";
import type { Database } from "../../src/store/database.ts";
import { openStore, type Store } from "../../src/store/open.ts";
import { sql } from "../../src/store/sql.ts";
import { playRole } from "../roles.ts";
import { median } from "../statistics.ts";
import { parts } from "./frames.ts";

/** Forks a long session, reads through forks, and stores files and reads them, in one process. */
export type ForkingParams = {
  readonly store: string;
  /** Of the session that is forked. */
  readonly entries: number;
  /** Of the one that is read, by itself and through three forks. */
  readonly readEntries: number;
  readonly fileBytes: number;
  readonly repeats: number;
};

export type Forked = {
  readonly forkMs: number;
  readonly readMs: number;
  readonly readForksMs: number;
  /** MB/s. */
  readonly upload: number;
  readonly download: number;
  readonly bareWrite: number;
  readonly bareRead: number;
};

const tenant = "default";
const atOnce = 200;
const pageSize = 1_000;
const forkCount = 3;
/** As files in the store have it. */
const partBytes = 256 * 1024;

playRole(
  async ({ store, entries, readEntries, fileBytes, repeats }: ForkingParams): Promise<Forked> => {
    const pod = await startPod({ store: store as Store, log: silentLogger, dataDir: false });
    const service = pod.sessionService!;
    await service.create(tenant, { sessionId: "long", users: ["ada"] });
    await fill(service, "long", entries);
    const forks = await timed(repeats, (nth) =>
      service.fork(tenant, "long", { id: `fork-${nth}`, atSeq: entries, users: ["ada"] }),
    );

    await service.create(tenant, { sessionId: "one", users: ["ada"] });
    await fill(service, "one", readEntries);
    const share = Math.floor(readEntries / (forkCount + 1));
    let last = "part-0";
    await service.create(tenant, { sessionId: last, users: ["ada"] });
    await fill(service, last, readEntries - share * forkCount);
    for (let nth = 1; nth <= forkCount; nth++) {
      const atSeq = readEntries - share * (forkCount - nth + 1);
      await service.fork(tenant, last, { id: `part-${nth}`, atSeq, users: ["ada"] });
      last = `part-${nth}`;
      await fill(service, last, share);
    }
    // By turns, so that both meet the same machine. The first time of each isn't counted.
    const alone: number[] = [];
    const through: number[] = [];
    for (let time = 0; time <= repeats; time++) {
      const one = await took(() => readAll(service, "one", readEntries));
      const other = await took(() => readAll(service, last, readEntries));
      if (time === 0) continue;
      alone.push(one);
      through.push(other);
    }

    await using flotilla = connect(store as Store, { log: silentLogger });
    const database = await openStore(store as Store);
    await database.write([
      sql`create table bare_part (file integer, part integer, body text, primary key (file, part))`,
    ]);
    const figures = { upload: [], download: [], bareWrite: [], bareRead: [] } as Record<
      "upload" | "download" | "bareWrite" | "bareRead",
      number[]
    >;
    for (let nth = 0; nth <= repeats; nth++) {
      const bytes = randomBytes(fileBytes);
      const speed = (ms: number) => fileBytes / 1e6 / (ms / 1_000);
      let hash = "";
      const upload = await took(async () => {
        const { url } = await service.upload(tenant, "one", [bytes]);
        hash = url.slice(url.indexOf(":") + 1);
      });
      const bareWrite = await took(() => writeBare(database, nth, bytes));
      const download = await took(async () => {
        const file = (await flotilla.files.find("one", hash))!;
        let length = 0;
        for await (const piece of flotilla.files.read(file)) length += piece.length;
        if (length !== fileBytes) throw new Error(`${length} bytes came back of ${fileBytes}`);
      });
      const bareRead = await took(() => readBare(database, nth, fileBytes));
      if (nth === 0) continue;
      figures.upload.push(speed(upload));
      figures.download.push(speed(download));
      figures.bareWrite.push(speed(bareWrite));
      figures.bareRead.push(speed(bareRead));
    }
    await database.close();
    await pod.stop();
    return {
      forkMs: median(forks),
      readMs: median(alone),
      readForksMs: median(through),
      upload: median(figures.upload),
      download: median(figures.download),
      bareWrite: median(figures.bareWrite),
      bareRead: median(figures.bareRead),
    };
  },
  { ends: "at once" },
);

async function fill(service: SessionService, sessionId: string, entries: number): Promise<void> {
  let left = entries;
  const lane = async () => {
    while (left-- > 0) await service.send(tenant, sessionId, { author: "ada", parts });
  };
  await Promise.all(Array.from({ length: atOnce }, lane));
}

async function readAll(service: SessionService, sessionId: string, entries: number): Promise<void> {
  let after = 0;
  for (;;) {
    const page = await service.entries(tenant, sessionId, { after, limit: pageSize });
    after = page.entries.at(-1)?.seq ?? after;
    if (page.next === null) break;
  }
  if (after !== entries) throw new Error(`${sessionId} has ${after} entries, not ${entries}`);
}

/** The same rows, one in each transaction, and nothing else. */
async function writeBare(database: Database, file: number, bytes: Buffer): Promise<void> {
  for (let from = 0; from < bytes.length; from += partBytes) {
    const body = bytes.subarray(from, from + partBytes).toString("base64");
    const part = from / partBytes;
    await database.write([
      sql`insert into bare_part (file, part, body) values (${file}, ${part}, ${body})`,
    ]);
  }
}

async function readBare(database: Database, file: number, length: number): Promise<void> {
  let found = 0;
  for (let part = 0; part * partBytes < length; part++) {
    const [row] = await database.read(
      sql`select body from bare_part where file = ${file} and part = ${part}`,
    );
    found += Buffer.from(row!["body"] as string, "base64").length;
  }
  if (found !== length) throw new Error(`${found} bytes came back of ${length}`);
}

async function took(work: () => Promise<unknown>): Promise<number> {
  const startedMs = performance.now();
  await work();
  return performance.now() - startedMs;
}

/** The first time isn't counted. */
async function timed(times: number, work: (nth: number) => Promise<unknown>): Promise<number[]> {
  const all: number[] = [];
  for (let nth = 0; nth <= times; nth++) all.push(await took(() => work(nth)));
  return all.slice(1);
}
