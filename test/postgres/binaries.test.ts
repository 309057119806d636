import { chmodSync, mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { serverPrograms } from "./binaries.ts";
import { installedPrograms } from "./installed.ts";

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "flotilla-programs-"));
  chmodSync(folder, 0o755);
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

/** What looks like a server's programs, and says that it is of this version. */
function programs(version: string, { closed = false } = {}): string {
  const bin = join(folder, version, "bin");
  mkdirSync(bin, { recursive: true });
  for (const program of ["initdb", "postgres"]) {
    writeFileSync(join(bin, program), `#!/bin/sh\necho "postgres (PostgreSQL) ${version}"\n`);
    chmodSync(join(bin, program), closed ? 0o600 : 0o755);
  }
  return bin;
}

describe("the server that tests run on", () => {
  test("is the newest that is installed", () => {
    const [old, newest, other] = [programs("15.9"), programs("17.10"), programs("17.9 (Debian)")];
    expect(installedPrograms([old, newest, other, "/nowhere"])).toBe(newest);
  });

  test("is where links on the path lead to, since they are to some of its programs alone", () => {
    const bin = programs("15.19");
    const linked = join(folder, "linked");
    mkdirSync(linked);
    for (const each of ["initdb", "postgres"]) symlinkSync(join(bin, each), join(linked, each));
    expect(installedPrograms([linked])).toBe(bin);
  });

  test("is none that is too old, half there, or closed to the user who would run it", () => {
    const old = programs("14.18");
    const half = programs("16.1");
    rmSync(join(half, "initdb"));
    expect(installedPrograms([old, half, programs("16.2", { closed: true })])).toBeUndefined();
  });

  test("is the one in the folder that is named", () => {
    const named = programs("15.0");
    expect(serverPrograms(named)).toBe(named);
    expect(() => serverPrograms(folder)).toThrow(`${folder} holds no Postgres 15 or later`);
  });

  test("must be a folder or npm's", () => {
    expect(() => serverPrograms("docker")).toThrow(
      'must be npm or a folder with initdb and postgres, not "docker"',
    );
  });
});
