import { execFileSync, spawn } from "node:child_process";
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import process from "node:process";
import { fileURLToPath } from "node:url";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import config from "../vitest.config.ts";
import { findBrowser, getParts, installPackages, missing, type Part } from "./parts.ts";

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "flotilla-parts-"));
  // The user that a Postgres server runs as has to come in.
  chmodSync(folder, 0o755);
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

const at = (name: string) => join(folder, name);

function put(name: string, { mode = 0o755, text = "" } = {}): string {
  writeFileSync(at(name), `#!/bin/sh\n${text}\n`);
  chmodSync(at(name), mode);
  return at(name);
}

const isRoot = process.getuid?.() === 0;
const root = fileURLToPath(new URL("..", import.meta.url));

/** Runs Node on a machine whose only programs are in the folder, so that nothing is installed there. */
async function onBareMachine(args: readonly string[]) {
  put("id", { text: 'exec /usr/bin/id "$@"' });
  for (const each of ["machine", "tmp"]) mkdirSync(at(each), { recursive: true });
  const bare = { PATH: folder, FLOTILLA_TEST_ROOT: at("machine"), TMPDIR: at("tmp") };
  const kept = Object.entries(process.env).filter(
    ([name]) => !/^(CHROMIUM_PATH|NATS_SERVER|FLOTILLA_TEST_.*|NODE_OPTIONS|VITEST.*)$/.test(name),
  );
  const child = spawn(process.execPath, args, {
    cwd: root,
    env: { ...Object.fromEntries(kept), ...bare, NO_COLOR: "1" },
    stdio: ["ignore", "pipe", "pipe"],
  });
  let said = "";
  child.stdout.setEncoding("utf8").on("data", (more: string) => (said += more));
  child.stderr.setEncoding("utf8").on("data", (more: string) => (said += more));
  const code = await new Promise<number | null>((resolve, reject) => {
    child.on("error", reject);
    child.on("close", resolve);
  });
  return { code, said };
}

const program = (text: string) => onBareMachine(["--input-type=module", "-e", text]);
const urlOf = (file: string) => JSON.stringify(new URL(file, import.meta.url).href);
const calls = () => {
  if (!existsSync(at("calls"))) return [];
  return readFileSync(at("calls"), "utf8").trim().split("\n");
};
/** An apt-get that notes how it was called, and does what is told besides. */
const putAptGet = (text = "") => put("apt-get", { text: `echo "$*" >> ${at("calls")}\n${text}` });
const waits = "-o DPkg::Lock::Timeout=600";
const install = `${waits} install -y --no-install-recommends`;

function partIn(name: string): Part {
  const find = () => (existsSync(at(name)) ? at(name) : undefined);
  return { what: `the ${name}`, package: `${name}-package`, find, otherwise: `make a ${name}` };
}

describe("what the tests need beyond npm", () => {
  test("is got with one call for all that is missing", () => {
    put("there");
    const calls: (readonly string[])[] = [];
    const wanted = ["there", "sail", "oar"].map(partIn);
    const failure = getParts(wanted, (names) => {
      calls.push(names);
      put("sail");
      put("oar");
      return undefined;
    });
    expect(failure).toBeUndefined();
    expect(calls).toEqual([["sail-package", "oar-package"]]);
    getParts(wanted, () => expect.unreachable("nothing is missing any more"));
  });

  test("is got in a way of its own where it has one, after all others, unless they brought it", () => {
    const order: string[] = [];
    const own = (name: string) => ({ ...partIn(name), get: () => void order.push(name) });
    const wanted = [own("sail"), partIn("oar"), own("keel")];
    getParts(wanted, (names) => {
      order.push(...names);
      put("keel");
      return undefined;
    });
    expect(order).toEqual(["oar-package", "sail"]);
    const failing = { ...partIn("mast"), get: () => "no wood" };
    expect(getParts([failing, partIn("rope")], () => "no hemp")).toBe("no hemp\nno wood");
  });

  const installing = `import { installPackages } from ${urlOf("parts.ts")};
    console.log(installPackages(["sail", "oar"], true, { tries: 3, pauseMs: 1 }) ?? "installed");`;

  test("is installed by one apt-get, which waits while another installs, and starts no service", async () => {
    putAptGet(`echo "$RUNLEVEL $DEBIAN_FRONTEND" >> ${at("calls")}`);
    const { said } = await program(installing);
    expect(said).toContain("Getting sail, oar for the tests with apt-get, once …");
    expect(said).toContain("installed");
    const quietly = "1 noninteractive";
    expect(calls()).toEqual([`${waits} update`, quietly, `${install} sail oar`, quietly]);
  });

  test("waits for locks that apt-get itself doesn't wait for, and not for ever", async () => {
    const lock = "E: Could not get lock /var/lib/apt/lists/lock. It is held by process 7 (apt-get)";
    const isSecond = `[ "$(wc -l < ${at("calls")})" -eq 2 ]`;
    // Without a path the stand-in finds no program.
    putAptGet(`PATH=/usr/bin:/bin; ${isSecond} || { echo "${lock}" >&2; exit 100; }`);
    const { said } = await program(installing);
    expect(calls()).toEqual([
      ...Array.from({ length: 2 }, () => `${waits} update`),
      ...Array.from({ length: 3 }, () => `${install} sail oar`),
    ]);
    expect(said).toContain(`apt-get install sail oar failed: ${lock}`);
  });

  test("is missing where a test asks for it, which then installs nothing and says what to do", async () => {
    putAptGet();
    const { code, said } = await program(
      `import { part } from ${urlOf("parts.ts")}; part("pgbouncer");`,
    );
    expect(code).toBe(1);
    expect(said).toContain("need what isn't installed here: PgBouncer.");
    expect(said).toContain("Debian and Ubuntu: apt-get install pgbouncer");
    expect(calls()).toEqual([]);
  });

  test("and can't be had ends the run with instructions", () => {
    const failure = installPackages(["sail"], false);
    expect(failure).toMatch(/Only root|no apt-get/);
    expect(missing(["sail", "oar"].map(partIn), failure).message).toBe(
      [
        "tests and benches need what isn't installed here: the sail, the oar.",
        failure,
        "Debian and Ubuntu: apt-get install sail-package oar-package",
        "the sail: make a sail",
        "the oar: make a oar",
      ].join("\n"),
    );
  });
});

describe("a run of the tests on a machine where they lack something", () => {
  const packages = [
    "postgresql",
    "chromium-headless-shell",
    "pgbouncer",
    "libfaketime",
    "openssl",
    "sqlite3",
    ...(process.platform === "linux" ? ["strace", "systemd", "iproute2", "nftables"] : []),
  ];
  /** What those packages bring, as far as it is looked for. */
  const files = [
    "lib/postgresql/15/bin/initdb",
    "lib/postgresql/15/bin/postgres",
    "bin/chromium-headless-shell",
    "sbin/pgbouncer",
    "lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1",
    "bin/openssl",
    "bin/sqlite3",
    "sbin/nats-server",
    "sbin/ip",
    "sbin/nft",
    "bin/strace",
    "bin/systemd-analyze",
  ].map((path) => join("machine/usr", path));

  test("gets all of it before the first test, and ends with what to do where that fails", async () => {
    putAptGet();
    const vitest = join(root, "node_modules/vitest/vitest.mjs");
    const { code, said } = await onBareMachine([vitest, "run", "src/store/postgres/pool.test.ts"]);
    expect(code).toBe(1);
    expect(said).toContain(
      "need what isn't installed here: a Postgres server, version 15 or later, PgBouncer, libfaketime, openssl.",
    );
    expect(said).toMatch(/^0 passed, 1 failed$/m);
    const getting = said.split("\n").filter((line) => line.startsWith("Getting "));
    const told = `Getting ${packages.join(", ")} for the tests with apt-get, once …`;
    expect(getting).toEqual(isRoot ? [told] : []);
    expect(said).toContain(isRoot ? told : "Only root may install packages");
    const once = [`${waits} update`, `${install} ${packages.join(" ")}`];
    expect(calls()).toEqual(isRoot ? once : []);
  });

  test("gets it once for all kinds of tests", async () => {
    const puts = files.map((path) => {
      const version = String.raw`#!/bin/sh\necho version 15.1.0\n`;
      const to = at(path);
      return `mkdir -p ${dirname(to)}; printf '${version}' > ${to}; chmod 755 ${to}`;
    });
    // Without a path the stand-in finds no program.
    const putAll = ["PATH=/usr/bin:/bin", ...puts].join("\n");
    if (isRoot) putAptGet(putAll);
    else execFileSync("sh", ["-c", putAll]);
    const { code, said } = await program(`import setup from ${urlOf("parts-setup.ts")};
      const projects = ["own", "browser", "unit", "stores", "process", "crash", "crash-alone"].map((name) => ({ name }));
      for (const { name } of projects) setup({ name, vitest: { projects } });`);
    expect({ code, said }).toMatchObject({ code: 0 });
    const got = calls().filter((call) => call.startsWith(install));
    expect(got).toEqual(isRoot ? [`${install} ${packages.join(" ")}`] : []);
  });

  test("looks for it first, of whichever kind the tests are", () => {
    type Project = { test: { name: string; globalSetup: string[] } };
    const { projects } = (config as unknown as { test: { projects: Project[] } }).test;
    expect(projects.map((each) => each.test.name)).toEqual([
      "own",
      "browser",
      "unit",
      "stores",
      "process",
      "crash",
      "crash-alone",
    ]);
    const firsts = new Set(projects.map((each) => each.test.globalSetup[0]));
    expect([...firsts]).toEqual(["./test/parts-setup.ts"]);
  });
});

describe("the browser that tests run on", () => {
  test("is the one that is named, if it can be run", () => {
    const named = put("my-browser");
    expect(findBrowser(named, [put("chromium")])).toBe(named);
    const closed = put("closed", { mode: 0o644 });
    expect(() => findBrowser(closed, [])).toThrow(
      `CHROMIUM_PATH: ${closed} isn't a program that can be run`,
    );
  });

  test("is else the first that is installed", () => {
    const places = ["/nowhere/chromium", folder, at("chromium"), at("google-chrome")];
    expect(findBrowser("", places)).toBeUndefined();
    const chrome = put("google-chrome");
    expect(findBrowser("", places)).toBe(chrome);
    const chromium = put("chromium");
    expect(findBrowser("", places)).toBe(chromium);
  });
});
