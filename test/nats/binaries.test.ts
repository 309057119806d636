import { chmodSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { debianMirror, findNatsServer, getNatsServer } from "./binaries.ts";

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "flotilla-nats-programs-"));
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

function put(version: string): string {
  const path = join(folder, `nats-server-${version}`);
  writeFileSync(path, `#!/bin/sh\necho "nats-server: v${version}"\n`);
  chmodSync(path, 0o755);
  return path;
}

describe("the NATS server that tests run on", () => {
  test.each(["2.14.6", "2.15.0", "2.15.1", "3.0.0"])("may be %s, if it is named", (version) => {
    const named = put(version);
    expect(findNatsServer(named)).toBe(named);
  });

  test.each(["2.9.10", "2.14.5", "1.99.99"])("isn't %s, which is too old", (version) => {
    const named = put(version);
    expect(() => findNatsServer(named)).toThrow(
      `NATS_SERVER: ${named} isn't a nats-server of version 2.14.6 or later`,
    );
  });

  test("isn't a file that isn't there", () => {
    expect(() => findNatsServer(join(folder, "nothing"))).toThrow(/2\.14\.6 or later/);
  });

  test("is got by root alone", () => {
    expect(getNatsServer(false)).toBe(
      "Only root may get nats-server with apt-get, and this isn't root.",
    );
  });
});

describe("the mirror that it comes from", () => {
  const keyring = "/usr/share/keyrings/debian.gpg";

  test.each([
    [
      "blocks",
      `Types: deb
# http://old.example.org/debian
URIs: http://mirror.example.org/debian
Suites: bookworm bookworm-updates
Components: main
Signed-By: ${keyring}`,
    ],
    [
      "lines",
      `# none\ndeb [arch=arm64 signed-by=${keyring}] http://mirror.example.org/debian bookworm main\n`,
    ],
  ])("is the machine's own, named in %s", (_, text) => {
    const mirror = { uri: "http://mirror.example.org/debian", signedBy: keyring };
    expect(debianMirror([text])).toEqual(mirror);
  });

  test("isn't one of anything else", () => {
    const others = [
      "deb http://mirror.example.org/ubuntu noble main\n",
      "Types: deb\nURIs: http://mirror.example.org/debian-security\nSuites: bookworm-security\n",
    ];
    expect(debianMirror(others)).toBeUndefined();
    const plain = "deb http://mirror.example.org/debian/ bookworm main\n";
    expect(debianMirror([...others, plain])).toEqual({
      uri: "http://mirror.example.org/debian/",
      signedBy: undefined,
    });
  });
});
