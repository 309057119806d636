import { spawnSync } from "node:child_process";
import { existsSync, globSync } from "node:fs";
import { homedir } from "node:os";
import { basename, delimiter, dirname, join } from "node:path";
import process from "node:process";
import { FlotillaError } from "../../base/errors.ts";

/** The oldest server that is started here: earlier ones can stop taking writes while they report health. */
export const oldestNatsServer = [2, 14, 6] as const;

const name = "nats-server";
const clients = ["@nats-io/transport-node", "@nats-io/jetstream"];
const usualFolders = ["/usr/sbin", "/usr/local/bin", "/opt/homebrew/bin"];

export type NatsProgramPlaces = {
  /** A program that is named. Default: what `NATS_SERVER` names. */
  named?: string | undefined;
  /** Where paths of the machine begin, for tests. */
  root?: string;
};

/**
 * The program of a NATS server: the one that `NATS_SERVER` names, else one on the path, else one in the
 * cache of this user, the newest first.
 */
export function findNatsServer({ named, root = "/" }: NatsProgramPlaces = {}): string | undefined {
  const wanted = named ?? process.env["NATS_SERVER"] ?? "";
  if (wanted !== "") {
    if (isRecentNats(natsVersionOf(wanted))) return wanted;
    throw new FlotillaError(
      "invalid_option",
      `NATS_SERVER: ${wanted} isn't a nats-server of version ${oldestNatsServer.join(".")} or later`,
    );
  }
  const onPath = (process.env["PATH"] ?? "").split(delimiter).filter((each) => each !== "");
  const usual = usualFolders.map((folder) => join(root, folder));
  const places = [...onPath, ...usual].map((folder) => join(folder, name));
  return [...places, ...kept(root)].find((path) => isRecentNats(natsVersionOf(path)));
}

/** The same, and what to do where there is none. */
export function natsServerProgram(): string {
  const found = findNatsServer();
  if (found !== undefined) return found;
  throw new FlotillaError(
    "unsupported",
    `there is no nats-server of version ${oldestNatsServer.join(".")} or later on the path: install one (macOS: brew install nats-server; others: https://github.com/nats-io/nats-server/releases), or name its program in NATS_SERVER`,
  );
}

/** Refuses to begin without the clients of NATS, which a project installs only if it wants them. */
export function checkNatsClients(): void {
  const absent = clients.filter((each) => !isInstalled(each));
  if (absent.length === 0) return;
  throw new FlotillaError(
    "unsupported",
    `the clients of NATS aren't installed: npm install ${absent.join(" ")}`,
  );
}

function isInstalled(client: string): boolean {
  try {
    import.meta.resolve(client);
    return true;
  } catch {
    return false;
  }
}

/** Where a server is kept that was got for this user alone, by its version. */
export function natsCacheFolder(root = "/"): string {
  const caches = process.env["XDG_CACHE_HOME"] || join(homedir(), ".cache");
  return join(root, caches, "flotilla", name);
}

/** The version of a program, nothing where there is none that can be run. */
export function natsVersionOf(program: string): number[] {
  if (!existsSync(program)) return [];
  return numbersIn(spawnSync(program, ["--version"], { encoding: "utf8" }).stdout ?? "");
}

export function isRecentNats(version: readonly number[]): boolean {
  return version.length === 3 && compare(version, oldestNatsServer) >= 0;
}

function kept(root: string): string[] {
  const found = globSync(join(natsCacheFolder(root), "*", name));
  const versionIn = (path: string) => numbersIn(basename(dirname(path)));
  return found.toSorted((one, other) => compare(versionIn(other), versionIn(one)));
}

function numbersIn(text: string): number[] {
  return (/(?<!\d)(\d{1,9})\.(\d{1,9})\.(\d{1,9})/.exec(text) ?? []).slice(1).map(Number);
}

function compare(one: readonly number[], other: readonly number[]): number {
  const at = one.findIndex((part, nth) => part !== other[nth]);
  return at < 0 ? 0 : one[at]! - other[at]!;
}
