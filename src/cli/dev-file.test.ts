import { execFileSync } from "node:child_process";
import {
  chmodSync,
  chownSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { createServer, type RequestListener } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import process from "node:process";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";

let folder: string;
let path: string;
let notices: string[];
const closing: (() => Promise<unknown>)[] = [];

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "flotilla-dev-file-"));
  path = join(folder, ".flotilla", "dev.json");
  notices = [];
  vi.resetModules();
  vi.spyOn(process, "cwd").mockReturnValue(folder);
  vi.spyOn(process.stderr, "write").mockImplementation((text) => notices.push(String(text)) > 0);
});
afterEach(async () => {
  vi.restoreAllMocks();
  vi.useRealTimers();
  for (const close of closing.splice(0)) await close();
  rmSync(folder, { recursive: true, force: true });
});

const load = () => import("./dev-file.ts");
const found = async () => (await load()).findDev();

/** A server that answers as a running `flotilla dev` does, unless it is told otherwise. */
async function serving(answer: RequestListener = (_, response) => response.end()) {
  const server = createServer(answer);
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  closing.push(() => new Promise((resolve) => server.close(resolve)));
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

function plant(content: unknown, mode = 0o600): void {
  mkdirSync(join(folder, ".flotilla"), { recursive: true, mode: 0o700 });
  writeFileSync(path, typeof content === "string" ? content : JSON.stringify(content), { mode });
  chmodSync(path, mode);
}

describe("the file of a running dev", () => {
  test("is written for its user alone, found with a notice, and taken back", async () => {
    const { announceDev, findDev } = await load();
    const { pid } = process;
    const dev = { pid, url: await serving(), store: "sqlite:app.db" };
    const takeBack = await announceDev(dev);
    expect(statSync(path).mode & 0o777).toBe(0o600);
    expect(statSync(join(folder, ".flotilla")).mode & 0o777).toBe(0o700);
    expect(readdirSync(join(folder, ".flotilla"))).toEqual(["dev.json"]);
    expect(await findDev()).toEqual(dev);
    expect(notices).toEqual([`flotilla: using the store of \`flotilla dev\` (pid ${pid})\n`]);
    takeBack();
    expect(existsSync(join(folder, ".flotilla"))).toBe(false);
  });

  test("names loopback where the server listens on all addresses, and isn't written for others", async () => {
    const { announceDev } = await load();
    await announceDev({ pid: process.pid, url: "http://192.0.2.1:8080" });
    expect(existsSync(path)).toBe(false);
    await announceDev({ pid: process.pid, url: "http://0.0.0.0:8080" });
    expect(JSON.parse(readFileSync(path, "utf8"))).toMatchObject({ url: "http://127.0.0.1:8080" });
  });

  test("is never written through a link", async () => {
    const { announceDev } = await load();
    const victim = join(folder, "victim");
    writeFileSync(victim, "as it was");
    mkdirSync(join(folder, ".flotilla"), { mode: 0o700 });
    for (const name of ["dev.json", `dev.json.${process.pid}`])
      symlinkSync(victim, join(folder, ".flotilla", name));
    await announceDev({ pid: process.pid, url: await serving(), store: "postgres://u:secret@h/d" });
    expect(readFileSync(victim, "utf8")).toBe("as it was");
    expect(readFileSync(path, "utf8")).toContain("secret");
  });

  test.each([
    ["a link", (at: string) => symlinkSync(mkdtempSync(join(folder, "other-")), at)],
    [
      "writable by others",
      (at: string) => {
        mkdirSync(at);
        chmodSync(at, 0o770);
      },
    ],
  ])("isn't written to a folder that is %s", async (_, make) => {
    make(join(folder, ".flotilla"));
    const { announceDev } = await load();
    await announceDev({ pid: process.pid, url: await serving() });
    expect(readdirSync(join(folder, ".flotilla"))).toEqual([]);
    expect(notices.join("")).toContain("need --store");
  });

  test.each([
    ["is found where its server answers after seconds", 5_000, true],
    ["doesn't count where nothing answers", 10_000, false],
  ])("%s", async (_, waitMs, isFound) => {
    const asked = Promise.withResolvers<{ end(): void }>();
    const url = await serving((_request, response) => asked.resolve(response));
    plant({ pid: process.pid, url });
    vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] });
    const finding = found();
    const response = await asked.promise;
    await vi.advanceTimersByTimeAsync(waitMs);
    response.end();
    expect((await finding) !== undefined).toBe(isFound);
  });

  test("of one that runs stays when a second starts and stops", async () => {
    const first = { pid: process.ppid, url: await serving() };
    plant(first);
    const { announceDev } = await load();
    const takeBack = await announceDev({ pid: process.pid, url: await serving() });
    expect(JSON.parse(readFileSync(path, "utf8"))).toEqual(first);
    expect(notices.join("")).toContain(`another \`flotilla dev\` (pid ${process.ppid})`);
    takeBack();
    expect(existsSync(path)).toBe(true);
  });

  test("stays where another dev has replaced it since", async () => {
    const { announceDev } = await load();
    const takeBack = await announceDev({ pid: process.pid, url: await serving() });
    plant({ pid: process.pid, url: "http://127.0.0.1:1" });
    takeBack();
    expect(existsSync(path)).toBe(true);
  });
});

describe("a file that no dev of this user wrote", () => {
  const dev = async (change: object = {}) => ({
    pid: process.pid,
    url: await serving(),
    ...change,
  });

  test("is believed only where it is the user's own", async () => {
    plant(await dev(), 0o644);
    expect(await found()).toBeUndefined();
    chmodSync(path, 0o600);
    chmodSync(join(folder, ".flotilla"), 0o777);
    vi.resetModules();
    expect(await found()).toBeUndefined();
    chmodSync(join(folder, ".flotilla"), 0o755);
    vi.resetModules();
    expect(await found()).toBeDefined();
  });

  test.runIf(process.getuid?.() === 0)("is not believed of another user", async () => {
    plant(await dev());
    chownSync(path, 65_534, 65_534);
    expect(await found()).toBeUndefined();
    chownSync(path, 0, 0);
    chownSync(join(folder, ".flotilla"), 65_534, 65_534);
    vi.resetModules();
    expect(await found()).toBeUndefined();
  });

  test("is not waited for where it is a pipe, and not read through a link", async () => {
    plant(await dev());
    const real = join(folder, ".flotilla", "real.json");
    writeFileSync(real, readFileSync(path), { mode: 0o600 });
    rmSync(path);
    execFileSync("mkfifo", ["-m", "600", path]);
    expect(await found()).toBeUndefined();
    rmSync(path);
    symlinkSync(real, path);
    vi.resetModules();
    expect(await found()).toBeUndefined();
  });

  test.each<[string, object | string]>([
    ["a store that isn't a URL", { store: { client: "pg" } }],
    ["a config that isn't a path", { config: 1 }],
    ["the first process", { pid: 1 }],
    ["a group of processes", { pid: -1 }],
    ["no process", { pid: "1" }],
    ["another host", { url: "http://flotilla.example" }],
    ["another protocol", { url: "https://127.0.0.1:1" }],
    ["too much", { store: "x".repeat(64 * 1024) }],
    ["null", "null"],
    ["no JSON", "{"],
  ])("doesn't count with %s", async (_, change) => {
    plant(typeof change === "string" ? change : await dev(change));
    expect(await found()).toBeUndefined();
    expect(notices).toEqual([]);
  });

  test("doesn't count where its server only redirects", async () => {
    const elsewhere = await serving();
    const url = await serving((_, response) => {
      response.writeHead(302, { location: elsewhere }).end();
    });
    plant(await dev({ url }));
    expect(await found()).toBeUndefined();
  });

  test("doesn't count where its process is another user's", async () => {
    plant(await dev());
    vi.spyOn(process, "kill").mockImplementation(() => {
      throw Object.assign(new Error("not permitted"), { code: "EPERM" });
    });
    expect(await found()).toBeUndefined();
  });
});
