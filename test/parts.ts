import { spawnSync } from "node:child_process";
import { accessSync, constants, existsSync, readdirSync, statSync } from "node:fs";
import { delimiter, join } from "node:path";
import process from "node:process";
import { findNatsServer, getNatsServer, oldestNatsServer } from "./nats/binaries.ts";
import { installedPrograms, oldestVersion, onMachine } from "./postgres/installed.ts";
import { keptPrograms } from "./postgres/packaged.ts";

/** A program, library or server that tests and benches need and npm doesn't install. */
export type Part = {
  readonly what: string;
  /** The package of Debian that it comes in. */
  readonly package: string;
  /** Where it is, or undefined where it isn't installed. */
  find(): string | undefined;
  /** Gets it where that package is too old, after all others. Gives why that failed, if it did. */
  get?(): string | undefined;
  /** How to have it where apt-get can't install it. */
  readonly otherwise?: string;
};

// Where programs are that aren't on the path of every user.
const usualFolders = [
  "/usr/bin",
  "/usr/sbin",
  "/usr/local/bin",
  "/usr/local/sbin",
  "/snap/bin",
  "/opt/homebrew/bin",
].map(onMachine);
const onPath = (process.env["PATH"] ?? "").split(delimiter).filter((each) => each !== "");
const folders = [...onPath, ...usualFolders];
// The shell without windows takes a sixth of the time of the others for a page.
const browsers = [
  ...[
    "chromium-headless-shell",
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
    "chrome",
  ].flatMap((name) => folders.map((folder) => join(folder, name))),
  onMachine("/Applications/Chromium.app/Contents/MacOS/Chromium"),
  onMachine("/Applications/Google Chrome.app/Contents/MacOS/Google Chrome"),
];

export const parts = {
  postgres: {
    what: `a Postgres server, version ${oldestVersion} or later`,
    package: "postgresql",
    find: () => installedPrograms() ?? keptPrograms(),
    otherwise:
      "macOS: brew install postgresql; or name the folder of its initdb and postgres in FLOTILLA_TEST_POSTGRES",
  },
  chromium: {
    what: "Chromium or Chrome",
    package: "chromium-headless-shell",
    find: () => findBrowser(process.env["CHROMIUM_PATH"] ?? "", browsers),
    otherwise: "macOS: brew install --cask chromium; or name its program in CHROMIUM_PATH",
  },
  pgbouncer: { what: "PgBouncer", package: "pgbouncer", find: () => program("pgbouncer") },
  faketime: { what: "libfaketime", package: "libfaketime", find: findFakeTime },
  openssl: { what: "openssl", package: "openssl", find: () => program("openssl") },
  sqlite: { what: "the sqlite3 program", package: "sqlite3", find: () => program("sqlite3") },
  nats: {
    what: `a NATS server, version ${oldestNatsServer.join(".")} or later`,
    package: "nats-server",
    find: () => findNatsServer(),
    get: () => getNatsServer(),
    otherwise:
      "of Debian only forky and later have one that is new enough; macOS: brew install nats-server; or name its program in NATS_SERVER",
  },
  redis: { what: "Redis", package: "redis-server", find: () => program("redis-server") },
  ip: { what: "the ip program", package: "iproute2", find: () => program("ip") },
  nft: { what: "the nft program", package: "nftables", find: () => program("nft") },
  systemd: {
    what: "systemd-analyze",
    package: "systemd",
    find: () => program("systemd-analyze"),
  },
  strace: { what: "strace", package: "strace", find: () => program("strace") },
} satisfies Record<string, Part>;

export type PartName = keyof typeof parts;

/**
 * Where a part is. One that is missing is an error: parts are got before the first test, once for all, and
 * two tests that each installed one would meet dpkg's lock.
 */
export function part(name: PartName): string {
  const found = parts[name].find();
  if (found !== undefined) return found;
  throw missing([parts[name]]);
}

/**
 * Installs those that are missing, all with one call of apt-get, but for those that have a way of their own.
 * Gives why that failed, if it did.
 */
export function getParts(wanted: readonly Part[], install = installPackages): string | undefined {
  const absent = wanted.filter((each) => each.find() === undefined);
  const packages = absent.filter((each) => !each.get).map((each) => each.package);
  const failures = [
    packages.length > 0 ? install(packages) : undefined,
    ...absent.filter((each) => each.find() === undefined).map((each) => each.get?.()),
  ];
  return failures.filter((each) => each !== undefined).join("\n") || undefined;
}

/** Says what is missing and what to do about it. */
export function missing(absent: readonly Part[], failure?: string): Error {
  return new Error(
    [
      `tests and benches need what isn't installed here: ${absent.map(({ what }) => what).join(", ")}.`,
      ...(failure === undefined ? [] : [failure]),
      `Debian and Ubuntu: apt-get install ${absent.map((each) => each.package).join(" ")}`,
      ...absent.flatMap(({ what, otherwise }) => (otherwise ? [`${what}: ${otherwise}`] : [])),
    ].join("\n"),
  );
}

// An upgrade that runs by itself on a new machine may take minutes.
const patienceSeconds = 600;
const patience = ["-o", `DPkg::Lock::Timeout=${patienceSeconds}`];
// That time is for dpkg's lock alone: the locks of lists and of archives are refused at once.
const isLocked = /Could not get lock|Unable to lock/;

/** Installs packages of Debian's. Gives why that failed, if it did. */
export function installPackages(
  names: readonly string[],
  isRoot = process.getuid?.() === 0,
  { tries, pauseMs } = { tries: patienceSeconds, pauseMs: 1_000 },
): string | undefined {
  if (program("apt-get") === undefined) return "There is no apt-get here, so nothing is installed.";
  if (!isRoot) return "Only root may install packages, and this isn't root.";
  console.error(`Getting ${names.join(", ")} for the tests with apt-get, once …`);
  // A runlevel without services keeps packages from starting what they bring.
  const settings = { DEBIAN_FRONTEND: "noninteractive", RUNLEVEL: "1", LC_ALL: "C" };
  const env = { ...process.env, ...settings };
  const apt = (...args: string[]) => {
    for (let left = tries; ; left--) {
      const ran = spawnSync("apt-get", [...patience, ...args], { env, encoding: "utf8" });
      if (ran.status === 0 || left <= 1 || !isLocked.test(ran.stderr ?? "")) return ran;
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, pauseMs);
    }
  };
  // Where it fails, the lists that are there may be good enough.
  apt("update");
  const { status, stderr } = apt("install", "-y", "--no-install-recommends", ...names);
  return status === 0 ? undefined : `apt-get install ${names.join(" ")} failed: ${stderr}`;
}

/** The browser that is named, else the first that can be run. */
export function findBrowser(named: string, places: readonly string[]): string | undefined {
  if (named === "") return places.find(canRun);
  if (canRun(named)) return named;
  throw new Error(`CHROMIUM_PATH: ${named} isn't a program that can be run`);
}

function findFakeTime(): string | undefined {
  // Of several threads, all must see the same clock.
  const name = join("faketime", "libfaketimeMT.so.1");
  for (const root of ["/usr/lib", "/usr/lib64", "/usr/local/lib"].map(onMachine)) {
    if (!existsSync(root)) continue;
    const places = ["", ...readdirSync(root)].map((folder) => join(root, folder, name));
    const found = places.find((path) => existsSync(path));
    if (found) return found;
  }
  return undefined;
}

function program(name: string): string | undefined {
  return folders.map((folder) => join(folder, name)).find(canRun);
}

function canRun(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return statSync(path).isFile();
  } catch {
    return false;
  }
}
