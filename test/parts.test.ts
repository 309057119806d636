import { spawnSync } from "node:child_process";
import { chmodSync, existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { delimiter, join } from "node:path";
import process from "node:process";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { findBrowser, getParts, installPackages, missing, type Part } from "./parts.ts";

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "flotilla-parts-"));
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

const at = (name: string) => join(folder, name);

function put(name: string, { mode = 0o755, text = "" } = {}): string {
  writeFileSync(at(name), `#!/bin/sh\n${text}\n`);
  chmodSync(at(name), mode);
  return at(name);
}

function partIn(name: string): Part {
  const find = () => (existsSync(at(name)) ? at(name) : undefined);
  return { what: `the ${name}`, package: `${name}-package`, find, otherwise: `make a ${name}` };
}

describe("what the tests need beyond npm", () => {
  test("is got with one call for all that is missing", () => {
    put("there");
    const calls: (readonly string[])[] = [];
    const wanted = ["there", "sail", "oar"].map(partIn);
    const failure = getParts(wanted, (names) => {
      calls.push(names);
      put("sail");
      put("oar");
      return undefined;
    });
    expect(failure).toBeUndefined();
    expect(calls).toEqual([["sail-package", "oar-package"]]);
    getParts(wanted, () => expect.unreachable("nothing is missing any more"));
  });

  test("is installed by one apt-get, which waits while another installs, and starts no service", () => {
    put("apt-get", { text: `echo "$RUNLEVEL $DEBIAN_FRONTEND $*" >> ${at("calls")}` });
    const module = new URL("parts.ts", import.meta.url).href;
    const script = `const { installPackages } = await import(${JSON.stringify(module)});
      process.exitCode = installPackages(["sail", "oar"], true) === undefined ? 0 : 1;`;
    const env = { ...process.env, PATH: [folder, process.env["PATH"]].join(delimiter) };
    const ran = spawnSync(process.execPath, ["--input-type=module", "-e", script], {
      env,
      encoding: "utf8",
    });
    expect(ran.status).toBe(0);
    expect(ran.stderr).toContain("Getting sail, oar for the tests with apt-get, once …");
    expect(readFileSync(at("calls"), "utf8").trim().split("\n")).toEqual([
      "1 noninteractive -o DPkg::Lock::Timeout=600 update",
      "1 noninteractive -o DPkg::Lock::Timeout=600 install -y --no-install-recommends sail oar",
    ]);
  });

  test("and can't be had ends the run with instructions", () => {
    const failure = installPackages(["sail"], false);
    expect(failure).toMatch(/Only root|no apt-get/);
    expect(missing(["sail", "oar"].map(partIn), failure).message).toBe(
      [
        "the tests need what isn't installed here: the sail, the oar.",
        failure,
        "Debian and Ubuntu: apt-get install sail-package oar-package",
        "the sail: make a sail",
        "the oar: make a oar",
      ].join("\n"),
    );
  });
});

describe("the browser that tests run on", () => {
  test("is the one that is named, if it can be run", () => {
    const named = put("my-browser");
    expect(findBrowser(named, [put("chromium")])).toBe(named);
    const closed = put("closed", { mode: 0o644 });
    expect(() => findBrowser(closed, [])).toThrow(
      `CHROMIUM_PATH: ${closed} isn't a program that can be run`,
    );
  });

  test("is else the first that is installed", () => {
    const places = ["/nowhere/chromium", folder, at("chromium"), at("google-chrome")];
    expect(findBrowser("", places)).toBeUndefined();
    const chrome = put("google-chrome");
    expect(findBrowser("", places)).toBe(chrome);
    const chromium = put("chromium");
    expect(findBrowser("", places)).toBe(chromium);
  });
});
