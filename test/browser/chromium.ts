import { accessSync, constants, statSync } from "node:fs";
import { delimiter, join } from "node:path";
import process from "node:process";
import { installPackage } from "../apt.ts";

const names = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome"];
const elsewhere = [
  "/usr/bin",
  "/snap/bin",
  "/Applications/Chromium.app/Contents/MacOS/Chromium",
  "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
];

/** The folders and files where a Chromium may be. */
export const usualPlaces = [...(process.env["PATH"] ?? "").split(delimiter), ...elsewhere];

/**
 * The browser of the tests: the one that `CHROMIUM_PATH` names, else one that is installed, else Debian's
 * is installed, where that is allowed. Without one they fail: a test that isn't run holds nothing.
 */
export function findChromium(
  named = process.env["CHROMIUM_PATH"] ?? "",
  places: readonly string[] = usualPlaces,
  install: () => string | undefined = () => installPackage("chromium", "Chromium"),
): string {
  if (named !== "") {
    if (canRun(named)) return named;
    throw new Error(`CHROMIUM_PATH: ${named} isn't a program that can be run`);
  }
  const installed = installedAt(places);
  if (installed !== undefined) return installed;
  const failure = install();
  const found = installedAt(places);
  if (found !== undefined) return found;
  throw new Error(
    [
      "these tests need Chromium or Chrome, and found none.",
      failure ?? "what apt-get installed isn't where programs are",
      "Install one (Debian: apt-get install chromium; macOS: brew install --cask chromium), or name its program in CHROMIUM_PATH.",
    ].join("\n"),
  );
}

function installedAt(places: readonly string[]): string | undefined {
  return places.flatMap((place) => [...names.map((name) => join(place, name)), place]).find(canRun);
}

function canRun(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return statSync(path).isFile();
  } catch {
    return false;
  }
}
