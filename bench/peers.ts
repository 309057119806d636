import { spawnSync } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { delimiter, dirname } from "node:path";
import process from "node:process";
import { fileURLToPath } from "node:url";

const folder = fileURLToPath(new URL("./", import.meta.url));

export type Versions = Readonly<Record<string, string>>;

/** Installs what `bench/package.json` names, as its lockfile says, unless that is done. */
export function installPeers(progress: (what: string) => void): Versions {
  const { dependencies } = JSON.parse(readFileSync(`${folder}package.json`, "utf8")) as {
    dependencies: Versions;
  };
  const missing = Object.entries(dependencies).filter(
    ([name, version]) => installedVersion(name) !== version,
  );
  if (missing.length > 0) {
    progress(`installing ${missing.map((each) => each.join(" ")).join(", ")} into bench/`);
    // npm picks older peers under an older Node, so it runs under the one that runs us.
    const path = [dirname(process.execPath), process.env["PATH"]].join(delimiter);
    const npm = process.env["npm_execpath"];
    const [program, args] = npm ? [process.execPath, [npm, "ci"]] : ["npm", ["ci"]];
    const { status } = spawnSync(program, args, {
      cwd: folder,
      // However quiet we were asked to be, why it fails must be seen.
      env: { ...process.env, PATH: path, npm_config_loglevel: "notice" },
      stdio: ["ignore", 2, 2],
    });
    if (status !== 0) throw new Error("the peers couldn't be installed: run `npm ci` in bench/");
  }
  return dependencies;
}

function installedVersion(name: string): string | undefined {
  const path = `${folder}node_modules/${name}/package.json`;
  if (!existsSync(path)) return undefined;
  return (JSON.parse(readFileSync(path, "utf8")) as { version: string }).version;
}
