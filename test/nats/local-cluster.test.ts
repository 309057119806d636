import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import pg from "pg";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { temporaryDatabase } from "../../src/store/contract/kinds.ts";
import { built } from "../built.ts";
import { type Outcome, run, start } from "../command.ts";
import { part } from "../parts.ts";
import { freePorts } from "../free-ports.ts";
import { ask, createSession, echoConfig, isAlive } from "./talking.ts";

let folder: string;
const cleanUps: (() => unknown)[] = [];
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "flotilla-cluster-"));
  writeFileSync(join(folder, "flotilla.config.mjs"), echoConfig(built.index));
});
afterEach(async () => {
  for (const cleanUp of cleanUps.splice(0).toReversed()) await cleanUp();
  rmSync(folder, { recursive: true, force: true });
});

type Member = { name: string; kind: string; pid: number; url: string; state: string };

const command = (args: readonly string[], env: Record<string, string> = {}): Promise<Outcome> =>
  run(args, { cwd: folder, env: { NATS_SERVER: part("nats"), ...env } });

describe("a cluster on this machine", () => {
  test("comes up, survives a pod and a server that are killed, is examined, and goes down", async () => {
    const { url: store, remove } = await temporaryDatabase();
    cleanUps.push(remove);
    const env = { FLOTILLA_STORE: store };
    const port = String(await freePorts(12));
    cleanUps.push(() => command(["cluster", "down"]));
    const up = await command(["cluster", "up", "--port", port, "--json"], env);
    expect(up).toMatchObject({ code: 0 });
    const { members } = JSON.parse(up.stdout) as { members: Member[] };
    expect(members.map(({ kind, state }) => `${kind} ${state}`)).toEqual([
      ...Array.from({ length: 3 }, () => "server up"),
      ...Array.from({ length: 3 }, () => "pod up"),
    ]);
    const again = await command(["cluster", "up", "--port", port], env);
    expect(again.stderr).toContain("is up already");

    const servers = members.filter(({ kind }) => kind === "server");
    const pods = members.filter(({ kind }) => kind === "pod");
    const urls = pods.map(({ url }) => url);
    const sessionId = await createSession(urls[0]!);
    expect(await ask(urls[1]!, sessionId, "one")).toBe("you said one");
    const monitors = [6, 7, 8].map((nth) => `monitor=http://127.0.0.1:${Number(port) + nth}`);
    const nats = `${servers.map(({ url }) => url).join(",")}?use=all&${monitors.join("&")}`;
    const sql = new pg.Client(store);
    await sql.connect();
    await sql.query(
      `insert into flotilla.archive_aside (log_id, incarnation, log_offset, place, body, reason)
      values (0, 'of a test', 1, -1, '{}', 'refused')`,
    );
    await sql.end();
    const doctor = await command(["doctor"], { ...env, FLOTILLA_NATS: nats });
    expect(doctor.stdout).toMatch(/ok\s+servers\s+(?:\d+\.\d+\.\d+(?:, )?){3}; they flush before/);
    expect(doctor.stdout).toMatch(/ok\s+streams\s+8 logs in 3 copies, of the deployment /);
    expect(doctor.stdout).toMatch(/ok\s+rights on streams\s+this user may do all/);
    expect(doctor.stdout).toMatch(
      /(?:ok\s+copies\s+3 servers have the same|warn\s+copies\s+n\d is behind)/,
    );
    expect(doctor.stdout).toMatch(/ok\s+archive\s+the database is at most \d+ messages behind/);
    expect(doctor.stdout).toMatch(
      /warn\s+set aside\s+the database has refused 1 parts of records, the last at 2/,
    );

    process.kill(pods[0]!.pid, "SIGKILL");
    expect(await ask(urls[1]!, sessionId, "two")).toBe("you said two");
    process.kill(servers[0]!.pid, "SIGKILL");
    expect(await ask(urls[2]!, sessionId, "three")).toBe("you said three");

    const status = await command(["cluster", "status", "--json"]);
    expect(status.code).toBe(1);
    const after = (JSON.parse(status.stdout) as { members: Member[] }).members;
    expect(after.filter(({ state }) => state === "down").map(({ name }) => name)).toEqual([
      "n1",
      "pod1",
    ]);
    const down = await command(["cluster", "down"]);
    expect(down.stdout).toContain("4 processes ended");
    expect(members.filter(({ pid }) => isAlive(pid))).toEqual([]);
    expect((await command(["cluster", "down"])).stdout).toContain("nothing of");
    expect((await command(["cluster", "status"])).stdout).toContain("there is no cluster");
  });

  test("says what it needs", async () => {
    const file = await command(["cluster", "up"], { FLOTILLA_STORE: "sqlite:a.db" });
    expect(file).toMatchObject({ code: 2 });
    expect(file.stderr).toContain("needs a store on Postgres");
    const env = { FLOTILLA_STORE: "postgres://127.0.0.1:1/none", NATS_SERVER: "/nowhere" };
    const none = await command(["cluster", "up"], env);
    expect(none.stderr).toContain("/nowhere isn't a nats-server of version");
  });

  test("leaves nothing running where a pod can't start", async () => {
    const env = { FLOTILLA_STORE: "postgres://postgres@127.0.0.1:1/none" };
    const port = String(await freePorts(12));
    const up = await command(["cluster", "up", "--port", port], env);
    expect(up.code).not.toBe(0);
    expect(up.stderr).toMatch(/pod\d has ended/);
    expect((await command(["cluster", "status"])).stdout).toContain("there is no cluster");
  });
});

describe("flotilla dev --nats", () => {
  test("keeps the logs of sessions on a server of its own, for itself and for commands in its folder", async () => {
    const env = { NATS_SERVER: part("nats") };
    const begin = async () => {
      const running = start(["dev", "--nats", "--port", "0"], { cwd: folder, env });
      await expect.poll(() => running.output.stdout).toMatch(/http:\/\/127\.0\.0\.1:\d+/);
      const url = /http:\/\/127\.0\.0\.1:\d+/.exec(running.output.stdout)![0];
      return { running, url };
    };
    const first = await begin();
    expect(first.running.output.stderr).toContain("in one copy");
    const sessionId = await createSession(first.url);
    expect(await ask(first.url, sessionId, "one")).toBe("you said one");
    const shown = await command(["sessions", "show", sessionId]);
    expect(shown.stdout).toContain(sessionId);
    const { pid } = JSON.parse(
      readFileSync(join(folder, ".flotilla/nats/server.json"), "utf8"),
    ).process;
    expect(isAlive(pid)).toBe(true);
    first.running.child.kill("SIGTERM");
    expect((await first.running.ended).code).toBe(0);
    expect(isAlive(pid)).toBe(false);

    const plain = await command(["dev", "--port", "0"]);
    expect(plain.code).not.toBe(0);
    expect(plain.stderr).toContain("are on NATS");
    const second = await begin();
    expect(await ask(second.url, sessionId, "two")).toBe("you said two");
    second.running.child.kill("SIGTERM");
    expect((await second.running.ended).code).toBe(0);
  });

  test("is refused beside another NATS", async () => {
    const env = { FLOTILLA_NATS: "nats://127.0.0.1:1", FLOTILLA_STORE: "postgres://127.0.0.1/x" };
    const refused = await command(["dev", "--nats"], env);
    expect(refused.stderr).toContain("--nats starts a NATS server of its own");
  });
});
