import { chmodSync, mkdtempSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { part } from "../../parts.ts";

export type FakeTime = {
  /** What a process is started with to live by this clock. */
  readonly env: Readonly<Record<string, string>>;
  /** Steps the wall clock to so far from the true time, while processes run by it. */
  set(offsetMs: number): void;
  remove(): void;
};

/**
 * A wall clock that is wrong, for processes that are started with it. Clocks that only rise are left
 * alone, as the setting of a machine's clock leaves them.
 */
export function fakeTime(offsetMs: number): FakeTime {
  const library = part("faketime");
  const folder = mkdtempSync(join(tmpdir(), "flotilla-clock-"));
  // A server runs as another user, and reads it too.
  chmodSync(folder, 0o755);
  const file = join(folder, "offset");
  const set = (ms: number) => {
    // Renamed into place, because a process that reads half a line ends itself.
    writeFileSync(`${file}.new`, `${ms < 0 ? "-" : "+"}${Math.abs(ms) / 1_000}\n`, { mode: 0o644 });
    renameSync(`${file}.new`, file);
  };
  set(offsetMs);
  return {
    env: {
      LD_PRELOAD: library,
      FAKETIME_TIMESTAMP_FILE: file,
      FAKETIME_NO_CACHE: "1",
      FAKETIME_DONT_FAKE_MONOTONIC: "1",
    },
    set,
    remove: () => rmSync(folder, { recursive: true, force: true }),
  };
}
