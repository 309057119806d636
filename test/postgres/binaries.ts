import { existsSync } from "node:fs";
import process from "node:process";
import { missing, parts } from "../parts.ts";
import { hasPrograms, oldestVersion } from "./installed.ts";
import { npmPrograms } from "./packaged.ts";

/**
 * The folder of a Postgres server's programs: the newest installed server, else the one that an npm package
 * brings. `FLOTILLA_TEST_POSTGRES` names another folder, or `npm`.
 */
export function serverPrograms(wanted = process.env["FLOTILLA_TEST_POSTGRES"] ?? ""): string {
  if (existsSync(wanted)) {
    if (hasPrograms(wanted)) return wanted;
    throw new Error(
      `FLOTILLA_TEST_POSTGRES: ${wanted} holds no Postgres ${oldestVersion} or later`,
    );
  }
  if (wanted !== "" && wanted !== "npm") {
    const shown = JSON.stringify(wanted);
    throw new Error(
      `FLOTILLA_TEST_POSTGRES must be npm or a folder with initdb and postgres, not ${shown}`,
    );
  }
  const installed = wanted === "npm" ? undefined : parts.postgres.find();
  if (installed !== undefined) return installed;
  const got = npmPrograms();
  if (typeof got === "string") return got;
  throw missing([parts.postgres], `npm: ${got.none}`);
}
