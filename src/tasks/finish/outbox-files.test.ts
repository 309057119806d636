import { spawn } from "node:child_process";
import {
  closeSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import process from "node:process";
import { afterEach, beforeEach, expect, test } from "vitest";
import type { Logger } from "../../base/log.ts";
import { completedFinish } from "./outcome.ts";
import type { OutboxEntry, OutboxDisk } from "./outbox.ts";
import { outboxFolder } from "./outbox-files.ts";
import { type StoredText, storedText } from "../../store/codec/codec.ts";
import { encryption } from "../../store/codec/encryption.ts";

let parent: string;
let folder: string;
let disks: OutboxDisk[];
let warnings: string[];
beforeEach(() => {
  parent = mkdtempSync(join(tmpdir(), "flotilla-outbox-"));
  folder = join(parent, "data", "store-1");
  disks = [];
  warnings = [];
});
afterEach(async () => {
  for (const disk of disks) await disk.close();
  rmSync(parent, { recursive: true });
});

const log: Logger = {
  debug: () => {},
  info: () => {},
  warn: (_, message) => void warnings.push(message),
  error: (_, message) => void warnings.push(message),
};
const openDisk = (text?: StoredText) => {
  const disk = outboxFolder(folder, log, text);
  disks.push(disk);
  return disk;
};
const entry = (taskId: string, token = 1): OutboxEntry => ({
  podId: "pod-1",
  finish: completedFinish({ taskId, token }, `"the result of ${taskId}"`),
});

test("nothing is made where nothing is kept", async () => {
  expect(await openDisk().takeOver()).toEqual([]);
  expect(readdirSync(parent)).toEqual([]);
});

test("what is kept is readable with the codec that wrote it alone", async () => {
  const encrypted = (key: string) =>
    storedText(encryption({ keys: { [key]: "07".repeat(32) } }), () => {});
  const first = openDisk(encrypted("one"));
  await first.write([entry("a")], []);
  await first.close();
  const files = readdirSync(folder).map((name) => readFileSync(join(folder, name), "latin1"));
  expect(files.join()).not.toContain("the result of");
  await expect(openDisk(encrypted("two")).takeOver()).rejects.toMatchObject({
    code: "codec_failed",
  });
  await disks.pop()!.close();
  expect(await openDisk(encrypted("one")).takeOver()).toEqual([entry("a")]);
});

test("what one process keeps, the next one finds, but for what was dropped", async () => {
  const first = openDisk();
  await first.write([entry("a"), entry("b"), entry("c")], []);
  await first.write([entry("b", 2)], [entry("a").finish]);
  await first.close();
  expect(await openDisk().takeOver()).toEqual([entry("b"), entry("b", 2), entry("c")]);
});

test("an ending that was decided again replaces the one before", async () => {
  const first = openDisk();
  await first.write([entry("a")], []);
  const again: OutboxEntry = {
    podId: "pod-1",
    finish: completedFinish(entry("a").finish, `"new"`),
  };
  await first.write([again], []);
  await first.close();
  expect(await openDisk().takeOver()).toEqual([again]);
});

test("two that live at once have a file each, and take nothing from each other", async () => {
  const [first, second] = [openDisk(), openDisk()];
  await first.write([entry("a")], []);
  await second.write([entry("b")], []);
  expect(await first.takeOver()).toEqual([entry("a")]);
  expect(await second.takeOver()).toEqual([entry("b")]);
});

test("a pod that starts takes over the files of all that are gone", async () => {
  const [first, second, third] = [openDisk(), openDisk(), openDisk()];
  await first.write([entry("a")], []);
  await second.write([entry("b")], []);
  await third.write([entry("c")], []);
  await second.close();
  await third.close();
  expect(await openDisk().takeOver()).toEqual([entry("b"), entry("c")]);
  expect(await openDisk().takeOver()).toEqual([]);
});

test("the lock of another process holds, and goes with it however it ends", async () => {
  const script = `
    import { outboxFolder } from ${JSON.stringify(new URL("./outbox-files.ts", import.meta.url).href)};
    const disk = outboxFolder(process.argv[1], console);
    await disk.write([${JSON.stringify(entry("a"))}], []);
    console.log("kept");
    setInterval(() => {}, 1_000);`;
  const child = spawn(process.execPath, ["--input-type=module", "-e", script, folder]);
  await new Promise((resolve) => child.stdout.once("data", resolve));
  const second = openDisk();
  await second.write([entry("b")], []);
  expect(await second.takeOver()).toEqual([entry("b")]);
  child.kill("SIGKILL");
  await new Promise((resolve) => child.once("exit", resolve));
  expect(await openDisk().takeOver()).toEqual([entry("a")]);
});

test("a damaged file is set aside with a warning, and the folder goes on", async () => {
  const first = openDisk();
  await first.write(
    Array.from({ length: 200 }, (_, at) => entry(`task-${at}`)),
    [],
  );
  await first.close();
  const file = openSync(join(folder, "outbox-1.db"), "r+");
  writeSync(file, Buffer.alloc(8_000, "damage"), 0, 8_000, 0);
  closeSync(file);

  const second = openDisk();
  expect(await second.takeOver()).toEqual([]);
  expect(warnings).toEqual(["outbox file damaged and renamed, its tasks run again"]);
  expect(existsSync(join(folder, "outbox-1.db.damaged-1"))).toBe(true);
  await second.write([entry("a")], []);
  expect(await second.takeOver()).toEqual([entry("a")]);
});

test("a folder that can't be made is an error, and works once it can", async () => {
  mkdirSync(join(parent, "data"));
  // Root may write everywhere, so the way is blocked by a file instead of by permissions.
  closeSync(openSync(folder, "w"));
  const disk = openDisk();
  await expect(disk.write([entry("a")], [])).rejects.toThrow("EEXIST");
  rmSync(folder);
  await disk.write([entry("a")], []);
  expect(await disk.takeOver()).toEqual([entry("a")]);
});

test("its files are their owner's alone, whatever else the process makes is", async () => {
  const umask = process.umask(0);
  try {
    await openDisk().write([entry("one")], []);
    const modes = readdirSync(folder).map((name) => statSync(join(folder, name)).mode & 0o777);
    expect(modes.length).toBeGreaterThanOrEqual(4);
    expect(new Set(modes)).toEqual(new Set([0o600]));
  } finally {
    process.umask(umask);
  }
});

test("steps of an attempt are kept beside its outcome, each by its number", async () => {
  const stepOf = (seq: number, token = 1): OutboxEntry => ({
    podId: "pod-1",
    finish: {
      taskId: "a",
      token,
      step: {
        key: `step ${seq}`,
        seq,
        kind: "done",
        inputHash: null,
        value: "1",
        tookMs: 0,
        forgets: false,
      },
    },
  });
  const first = openDisk();
  await first.write([entry("a"), stepOf(1), stepOf(2), stepOf(2, 5)], []);
  await first.write([], [stepOf(1).finish]);
  await first.close();
  const second = openDisk();
  expect(await second.takeOver()).toEqual([stepOf(2), stepOf(2, 5), entry("a")]);
  await second.write([], [entry("a").finish]);
  await second.close();
  expect(await openDisk().takeOver()).toEqual([stepOf(2), stepOf(2, 5)]);
});
