import { type ChildProcess, spawn } from "node:child_process";
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { delimiter, dirname, join } from "node:path";
import process from "node:process";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { until } from "../../src/base/contract/movable-clock.ts";
import { temporaryDatabase } from "../../src/store/contract/kinds.ts";
import { freePorts } from "../free-ports.ts";
import { ask, createSession, echoConfig, isAlive } from "../nats/talking.ts";
import { part } from "../parts.ts";
import { installTarball, link, packTarball } from "./package.ts";

const clients = ["@nats-io/transport-node", "@nats-io/jetstream"];
const install = `npm install ${clients.join(" ")}`;
const cleanUps: (() => unknown)[] = [];
let folder: string;
let project: string;

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), "flotilla-clustered-"));
  project = join(folder, "my-chats");
  mkdirSync(project);
  installTarball(await packTarball(folder), project, ["pg", ...clients]);
  // As npm does with what a package calls its commands.
  mkdirSync(join(project, "node_modules/.bin"));
  symlinkSync("../flotilla/bin/flotilla.js", join(project, "node_modules/.bin/flotilla"));
  writeFileSync(join(project, "package.json"), `{ "type": "module" }`);
  writeFileSync(join(project, "flotilla.config.js"), echoConfig("flotilla"));
}, 180_000);
afterEach(async () => {
  for (const cleanUp of cleanUps.splice(0).toReversed()) await cleanUp();
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

type Started = {
  readonly child: ChildProcess;
  readonly said: { out: string; all: string };
  readonly code: Promise<number | null>;
};

/** The command of the project, as `npx` runs it. */
function npx(args: readonly string[], env: Record<string, string> = {}): Started {
  const own = Object.entries(process.env).filter(([name]) => !/^(FLOTILLA_|VITEST)/.test(name));
  const path = [dirname(process.execPath), process.env["PATH"]].join(delimiter);
  const child = spawn(join(project, "node_modules/.bin/flotilla"), args, {
    cwd: project,
    env: { ...Object.fromEntries(own), PATH: path, NATS_SERVER: part("nats"), ...env },
    stdio: ["ignore", "pipe", "pipe"],
  });
  const said = { out: "", all: "" };
  child.stdout.on("data", (more: Buffer) => {
    said.out += more.toString();
    said.all += more.toString();
  });
  child.stderr.on("data", (more: Buffer) => (said.all += more.toString()));
  const code = new Promise<number | null>((resolve) => child.once("close", resolve));
  cleanUps.push(() => child.kill("SIGKILL"));
  return { child, said, code };
}

async function ended(args: readonly string[], env?: Record<string, string>) {
  const { said, code } = npx(args, env);
  return { code: await code, ...said };
}

describe("a project that has installed the package and the clients of NATS", () => {
  test("tries logs on one server with `flotilla dev --nats`", async () => {
    const { child, said, code } = npx(["dev", "--nats", "--port", "0"]);
    const url = await until("a server", () => {
      if (child.exitCode !== null) throw new Error(said.all);
      return /http:\/\/127\.0\.0\.1:\d+/.exec(said.all)?.[0];
    });
    const state = readFileSync(join(project, ".flotilla/nats/server.json"), "utf8");
    const { pid } = (JSON.parse(state) as { process: { pid: number } }).process;
    expect(await ask(url, await createSession(url), "hello")).toBe("you said hello");
    child.kill("SIGTERM");
    expect(await code).toBe(0);
    expect(isAlive(pid)).toBe(false);
  }, 180_000);

  test("tries three servers and three pods with `flotilla cluster up`, `status` and `down`", async () => {
    const { url: store, remove } = await temporaryDatabase();
    cleanUps.push(remove);
    cleanUps.push(() => ended(["cluster", "down"]));
    const port = String(await freePorts(12));
    const up = await ended(["cluster", "up", "--store", store, "--port", port, "--json"]);
    expect(up).toMatchObject({ code: 0 });
    const { members } = JSON.parse(up.out) as {
      members: { kind: string; url: string; pid: number }[];
    };
    const [first, , last] = members.filter(({ kind }) => kind === "pod");
    const session = await createSession(first!.url);
    expect(await ask(last!.url, session, "hello")).toBe("you said hello");
    const status = await ended(["cluster", "status"]);
    expect(status).toMatchObject({ code: 0 });
    expect(status.out.match(/^up /gm)).toHaveLength(6);
    expect((await ended(["cluster", "down"])).out).toContain("6 processes ended");
    expect(members.filter(({ pid }) => isAlive(pid))).toEqual([]);
  }, 240_000);
});

describe("what is missing is said in a sentence that says what to do, and nothing is left running:", () => {
  const store = "postgres://127.0.0.1:1/none";
  const commands = [
    ["dev", "--nats", "--port", "0"],
    ["cluster", "up", "--store", store],
  ];

  test.each(commands)("a nats-server, to %s %s", async (...args) => {
    // Nowhere but where every machine has its programs.
    const env = { NATS_SERVER: "", PATH: dirname(process.execPath), XDG_CACHE_HOME: folder };
    const usual = ["/usr/sbin", "/usr/local/bin", "/opt/homebrew/bin"];
    if (usual.some((each) => existsSync(join(each, "nats-server")))) return;
    const { code, all } = await ended(args, env);
    expect(code).not.toBe(0);
    expect(all).toMatch(/there is no nats-server of version [\d.]+ or later .*install one/);
    expect(all).toContain("NATS_SERVER");
    expect(all).not.toMatch(/^\s+at /m);
  });

  describe("the clients of NATS,", () => {
    beforeAll(() => rmSync(join(project, "node_modules/@nats-io"), { recursive: true }));
    afterAll(() => clients.forEach((each) => link(project, each)));

    test.each(commands)("to %s %s", async (...args) => {
      const { code, all } = await ended(args);
      expect(code).not.toBe(0);
      expect(all).toContain(install);
      expect(all).not.toMatch(/^\s+at /m);
      expect(existsSync(join(project, ".flotilla/nats/server.json"))).toBe(false);
      expect((await ended(["cluster", "status"])).out).toContain("there is no cluster");
    });

    test("to serve, for the rest as before", async () => {
      const nats = "nats://127.0.0.1:1?use=all&durability=single";
      const { code, all } = await ended(["serve", "--port", "0", "--store", "sqlite:x.db"], {
        FLOTILLA_NATS: nats,
      });
      expect(code).not.toBe(0);
      expect(all).toContain(install);
    });
  });
});
