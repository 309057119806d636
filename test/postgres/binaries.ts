import { existsSync } from "node:fs";
import process from "node:process";
import { installDebian } from "./debian.ts";
import { type Found, hasPrograms, installedPrograms, oldestVersion } from "./installed.ts";
import { npmPrograms } from "./packaged.ts";

/**
 * The folder of a Postgres server's programs. An installed server is taken if there is one, the newest
 * first; else the one that npm packages bring, kept for the next time; else Debian's is installed,
 * where that is allowed. `FLOTILLA_TEST_POSTGRES` chooses among these, or names a folder.
 */
export function serverPrograms(
  wanted = process.env["FLOTILLA_TEST_POSTGRES"] ?? "",
  ways: Ways = allWays,
): string {
  if (existsSync(wanted)) {
    if (hasPrograms(wanted)) return wanted;
    throw new Error(
      `FLOTILLA_TEST_POSTGRES: ${wanted} holds no Postgres ${oldestVersion} or later`,
    );
  }
  const tried = wanted === "" ? Object.keys(ways) : [wanted];
  const reasons: string[] = [];
  for (const name of tried) {
    const way = ways[name];
    if (!way) {
      throw new Error(
        `FLOTILLA_TEST_POSTGRES must be ${Object.keys(ways).join(", ")} or a folder with initdb and postgres, not ${JSON.stringify(wanted)}`,
      );
    }
    const got = way();
    if (typeof got === "string") return got;
    reasons.push(`${name}: ${got.none}`);
  }
  throw new Error(
    [
      `these tests need a Postgres server, version ${oldestVersion} or later, and found none.`,
      ...reasons,
      "Install one (Debian and Ubuntu: apt-get install postgresql; macOS: brew install postgresql), put the folder of its initdb and postgres on the PATH, or name that folder in FLOTILLA_TEST_POSTGRES.",
    ].join("\n"),
  );
}

export type Ways = Readonly<Record<string, () => Found>>;

const allWays: Ways = {
  installed: () => installedPrograms() ?? { none: "no server is installed" },
  npm: npmPrograms,
  debian: installDebian,
};
