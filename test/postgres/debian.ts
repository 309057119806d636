import { installPackage } from "../apt.ts";
import { type Found, installedPrograms } from "./installed.ts";

/** Installs Debian's server. It isn't started: what runs for the tests is a cluster of their own. */
export function installDebian(): Found {
  const failure = installPackage("postgresql", "a Postgres server");
  return installedPrograms() ?? { none: failure ?? "what apt-get installed can't be run" };
}
