import { spawnSync } from "node:child_process";
import {
  existsSync,
  globSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { basename, join } from "node:path";
import process from "node:process";
import {
  findNatsServer as findOnMachine,
  isRecentNats,
  natsCacheFolder,
  natsVersionOf,
  oldestNatsServer,
} from "../../src/cli/cluster/nats-program.ts";
import { onMachine } from "../postgres/installed.ts";

export { oldestNatsServer };

// Debian's own suites have older ones; packages of these run on it unchanged.
const newerSuites = ["forky", "sid"];
const name = "nats-server";

/** A mirror of Debian that this machine's apt uses, and the keyring that it trusts for it. */
export type Mirror = { readonly uri: string; readonly signedBy: string | undefined };

/** The program of a NATS server, where commands look for it. */
export function findNatsServer(named?: string): string | undefined {
  return findOnMachine({ named, root: onMachine("/") });
}

/**
 * Gets a server from a newer suite of Debian, by the mirror that this machine's apt uses, into the cache.
 * Nothing is installed. Gives why that failed, if it did.
 */
export function getNatsServer(isRoot = process.getuid?.() === 0): string | undefined {
  if (!isRoot) return `Only root may get ${name} with apt-get, and this isn't root.`;
  const mirror = debianMirror(aptSources());
  if (mirror === undefined) return `There is no mirror of Debian to get ${name} from.`;
  console.error(`Getting ${name} for the tests from ${newerSuites.join(" or ")}, once …`);
  mkdirSync(natsCacheFolder(onMachine("/")), { recursive: true });
  const folder = mkdtempSync(join(natsCacheFolder(onMachine("/")), ".getting-"));
  try {
    const failures: string[] = [];
    for (const suite of newerSuites) {
      const failure = download(mirror, suite, folder);
      const [program] = programsIn(folder);
      if (program !== undefined && isRecentNats(natsVersionOf(program))) return keep(program);
      failures.push(`${suite}: ${failure ?? "its server is too old or doesn't run here"}`);
    }
    return `${name} couldn't be got (${failures.join("; ")})`;
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** The first mirror of Debian's own packages in the texts of apt's sources, of either form. */
export function debianMirror(sources: readonly string[]): Mirror | undefined {
  for (const text of sources) {
    const plain = text.replaceAll(/^\s*#.*\n?/gm, "");
    for (const block of plain.split(/\n\s*\n/)) {
      const uri = /^URIs:\s*(\S+)/m.exec(block)?.[1];
      const signedBy = /^Signed-By:\s*(\/\S+)/m.exec(block)?.[1];
      if (uri !== undefined && isDebian(uri)) return { uri, signedBy };
    }
    for (const line of plain.split("\n")) {
      const [, options = "", uri] = /^deb\s+(?:\[([^\]]*)\]\s+)?(\S+)\s/.exec(line) ?? [];
      const signedBy = /signed-by=(\/\S+)/.exec(options)?.[1];
      if (uri !== undefined && isDebian(uri)) return { uri, signedBy };
    }
  }
  return undefined;
}

const isDebian = (uri: string) => /\/debian\/?$/.test(uri);

function aptSources(): string[] {
  const paths = [
    ...globSync(onMachine("/etc/apt/sources.list.d/*.{sources,list}")),
    onMachine("/etc/apt/sources.list"),
  ];
  return paths.filter((path) => existsSync(path)).map((path) => readFileSync(path, "utf8"));
}

/** Downloads and unpacks the package of a suite, with lists and a cache of its own. */
function download({ uri, signedBy }: Mirror, suite: string, folder: string): string | undefined {
  const at = (path: string) => join(folder, path);
  for (const each of ["lists/partial", "cache/archives/partial", "parts"])
    mkdirSync(at(each), { recursive: true });
  const trust = signedBy === undefined ? "" : `[signed-by=${signedBy}] `;
  writeFileSync(at("sources.list"), `deb ${trust}${uri} ${suite} main\n`);
  const settings = {
    "Dir::Etc::SourceList": at("sources.list"),
    "Dir::Etc::SourceParts": at("parts"),
    "Dir::State::Lists": at("lists"),
    "Dir::Cache": at("cache"),
    "Acquire::Languages": "none",
    // Its own user couldn't write into a folder of root's.
    "APT::Sandbox::User": "root",
  };
  const options = Object.entries(settings).flatMap(([key, value]) => ["-o", `${key}=${value}`]);
  const run = (program: string, args: string[]) => {
    const ran = spawnSync(program, args, { cwd: folder, encoding: "utf8" });
    if (ran.status === 0) return undefined;
    return `${program} ${args.at(-1)} failed: ${ran.stderr || ran.error?.message}`;
  };
  const failure =
    run("apt-get", [...options, "update"]) ?? run("apt-get", [...options, "download", name]);
  if (failure !== undefined) return failure;
  const package_ = readdirSync(folder).find((each) => each.endsWith(".deb"));
  if (package_ === undefined) return "apt-get left no package";
  return run("dpkg", ["-x", package_, at("unpacked")]);
}

/** Moves a program into the cache under its version. Another process may have been faster. */
function keep(program: string): undefined {
  const folder = join(natsCacheFolder(onMachine("/")), natsVersionOf(program).join("."));
  mkdirSync(folder, { recursive: true });
  renameSync(program, join(folder, basename(program)));
}

function programsIn(folder: string): string[] {
  return globSync(join(folder, "unpacked/usr/{bin,sbin}", name));
}
