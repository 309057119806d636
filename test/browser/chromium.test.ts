import { chmodSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { findChromium } from "./chromium.ts";

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "flotilla-chromium-"));
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

function put(name: string, mode = 0o755): string {
  const path = join(folder, name);
  writeFileSync(path, "#!/bin/sh\n");
  chmodSync(path, mode);
  return path;
}
const never = () => {
  throw new Error("nothing is to be installed");
};

describe("the browser that tests run on", () => {
  test("is the one that is named, if it can be run", () => {
    const named = put("my-browser");
    put("chromium");
    expect(findChromium(named, [folder], never)).toBe(named);
    const closed = put("closed", 0o644);
    expect(() => findChromium(closed, [folder], never)).toThrow(
      `CHROMIUM_PATH: ${closed} isn't a program that can be run`,
    );
  });

  test("is one that is installed, Chromium before Chrome", () => {
    const chrome = put("google-chrome");
    expect(findChromium("", ["/nowhere", folder], never)).toBe(chrome);
    const chromium = put("chromium");
    expect(findChromium("", ["/nowhere", folder], never)).toBe(chromium);
    expect(findChromium("", [chrome], never)).toBe(chrome);
  });

  test("is installed where there is none", () => {
    const install = () => void put("chromium");
    expect(findChromium("", [folder], install)).toBe(join(folder, "chromium"));
  });

  test("that can't be had leaves instructions", () => {
    expect(() => findChromium("", [folder], () => "only root may install packages")).toThrow(
      /found none\.\nonly root may install packages\nInstall one .*apt-get install chromium/,
    );
  });
});
