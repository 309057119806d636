import {
  closeSync,
  constants,
  fstatSync,
  lstatSync,
  mkdirSync,
  openSync,
  readSync,
  renameSync,
  rmdirSync,
  rmSync,
  type Stats,
  writeFileSync,
} from "node:fs";
import { dirname, join } from "node:path";
import process from "node:process";
import { systemClock } from "../base/clock.ts";
import { uuidv7 } from "../base/ids.ts";
import { systemRandom } from "../base/random.ts";
import { printNotice } from "./output.ts";

/**
 * A running `flotilla dev` announces itself in a file of its working folder, so that commands which are run
 * there use its store and its config, also where it was started with flags. A command runs that config, so
 * it believes only a file that its own user has written.
 */
export type RunningDev = {
  readonly pid: number;
  /** On loopback. */
  readonly url: string;
  /** Missing where the config has a store that isn't a URL. */
  readonly store?: string;
  readonly config?: string;
  /** The NATS server that it has started, as `FLOTILLA_NATS` would say it. */
  readonly nats?: string;
};

const file = join(".flotilla", "dev.json");
const maxFileBytes = 64 * 1024;
// A machine that is busy may keep it from answering for seconds. What listens there instead answers soon.
const answerTimeoutMs = 10_000;

/**
 * Returns what takes the announcement back. Without a folder that only this user can write there is no
 * announcement, and neither while another `flotilla dev` has one there.
 */
export async function announceDev(dev: RunningDev): Promise<() => void> {
  const nothing = (): void => {};
  const path = join(process.cwd(), file);
  const folder = dirname(path);
  const url = loopbackOf(dev.url);
  if (url === undefined) {
    printNotice(`commands in this folder need a flag such as --url: ${dev.url} isn't on loopback`);
    return nothing;
  }
  const other = await findAt(path);
  if (other && other.pid !== dev.pid) {
    printNotice(
      `another \`flotilla dev\` (pid ${other.pid}) runs in this folder: commands without flags use its store`,
    );
    return nothing;
  }
  // The URL of the store may have a password.
  const text = JSON.stringify({ ...dev, url });
  const written = `${path}.${uuidv7(systemClock, systemRandom).next()}`;
  try {
    mkdirSync(folder, { recursive: true, mode: 0o700 });
    if (!isOwnFolder(folder)) {
      printNotice(
        `commands in this folder need --store: ${folder} isn't a folder that only its user can write`,
      );
      return nothing;
    }
    writeFileSync(written, text, { flag: "wx", mode: 0o600 });
    renameSync(written, path);
  } catch {
    rmSync(written, { force: true });
    return nothing;
  }
  return () => {
    try {
      if (readText(path) !== text) return;
      rmSync(path);
      rmdirSync(folder);
    } catch {
      // Other files are in the folder, or another process has removed it.
    }
  };
}

let finding: Promise<RunningDev | undefined> | undefined;

/**
 * The `flotilla dev` that runs in this folder, with a notice that it is used. One that was killed left its
 * file: it doesn't count.
 */
export function findDev(): Promise<RunningDev | undefined> {
  return (finding ??= findAt(join(process.cwd(), file)).then((dev) => {
    if (dev) printNotice(`using the store of \`flotilla dev\` (pid ${dev.pid})`);
    return dev;
  }));
}

async function findAt(path: string): Promise<RunningDev | undefined> {
  const dev = parse(readText(path));
  if (!dev || !isOwnProcess(dev.pid)) return undefined;
  const { network } = await import("../throttles/fetch.ts");
  const late = new AbortController();
  const cancel = systemClock.after(answerTimeoutMs, () => late.abort());
  try {
    // Another process may have its id by now, but hardly its port as well.
    const { ok, body } = await network(`${dev.url}/health/live`, {
      redirect: "error",
      signal: late.signal,
    });
    await body?.cancel();
    return ok ? dev : undefined;
  } catch {
    return undefined;
  } finally {
    cancel();
  }
}

/** The text of a file that only this user can have written; undefined for anything else. */
function readText(path: string): string | undefined {
  let opened: number | undefined;
  try {
    if (!isOwnFolder(dirname(path))) return undefined;
    // Not through a link, and without waiting for the writer of a named pipe. Windows has neither flag:
    // they are undefined there, which is no bit.
    const { O_RDONLY, O_NOFOLLOW, O_NONBLOCK } = constants;
    opened = openSync(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
    const stats = fstatSync(opened);
    if (!stats.isFile() || !isOwn(stats, 0o077) || stats.size > maxFileBytes) return undefined;
    const bytes = Buffer.alloc(stats.size);
    return bytes.toString("utf8", 0, readSync(opened, bytes));
  } catch {
    return undefined;
  } finally {
    if (opened !== undefined) closeSync(opened);
  }
}

function isOwnFolder(folder: string): boolean {
  const stats = lstatSync(folder);
  return stats.isDirectory() && isOwn(stats, 0o022);
}

/** Whether it is this user's, and others have none of these permissions. Windows has no such modes. */
function isOwn({ uid, mode }: Stats, permissions: number): boolean {
  const own = process.getuid?.();
  return own === undefined || (uid === own && (mode & permissions) === 0);
}

function parse(text: string | undefined): RunningDev | undefined {
  if (text === undefined) return undefined;
  let found: Readonly<Record<string, unknown>> | null;
  try {
    found = JSON.parse(text) as typeof found;
  } catch {
    return undefined;
  }
  const { pid, url, store, config, nats } = found ?? {};
  const isText = (value: unknown) => value === undefined || typeof value === "string";
  const isValid =
    Number.isSafeInteger(pid) &&
    Number(pid) > 1 &&
    typeof url === "string" &&
    loopbackOf(url) === url &&
    isText(store) &&
    isText(config) &&
    isText(nats);
  return isValid ? (found as RunningDev) : undefined;
}

/** The URL on loopback of a server; undefined where it doesn't listen there. */
function loopbackOf(url: string): string | undefined {
  if (!URL.canParse(url)) return undefined;
  const { protocol, hostname, port, username, password } = new URL(url);
  if (protocol !== "http:" || username !== "" || password !== "") return undefined;
  const host = { "0.0.0.0": "127.0.0.1", "[::]": "[::1]" }[hostname] ?? hostname;
  const isLoopback = /^(localhost|127(\.\d+){3}|\[::1\])$/.test(host);
  return isLoopback ? `http://${host}${port === "" ? "" : `:${port}`}` : undefined;
}

/** Whether it runs. A process of another user, which may not be signalled, isn't this user's `dev`. */
function isOwnProcess(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch {
    return false;
  }
}
