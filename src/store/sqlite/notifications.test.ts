import { readdirSync, readlinkSync } from "node:fs";
import { DatabaseSync } from "node:sqlite";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { eventLoopTurns, until } from "../../base/contract/movable-clock.ts";
import { temporaryFile } from "../contract/kinds.ts";
import { watchCommits } from "./notifications.ts";

let place: ReturnType<typeof temporaryFile>;
let db: DatabaseSync;
beforeEach(() => {
  place = temporaryFile();
  db = new DatabaseSync(place.path);
  db.exec("pragma journal_mode = wal; create table scratch (id integer primary key)");
});
afterEach(async () => {
  db.close();
  await place.remove();
});

/** How often this process has a file open. */
function opened(path: string): number {
  const links = readdirSync("/proc/self/fd").map((fd) => {
    try {
      return readlinkSync(`/proc/self/fd/${fd}`);
    } catch {
      return "";
    }
  });
  return links.filter((link) => link === path).length;
}

describe("watching a file for commits", () => {
  test("calls every listener for every commit, also after a pause", async () => {
    const commits = watchCommits(place.path);
    const told = [0, 0];
    commits.subscribe(() => told[0]!++);
    commits.subscribe(() => told[1]!++);
    for (let id = 1; id <= 10; id++) {
      const [first, second] = [...told];
      db.exec(`insert into scratch values (${id})`);
      expect(await until("both hints", () => told[0]! > first! && told[1]! > second!)).toBe(true);
    }
    commits.close();
  });

  test("notifies only when the commit can be seen", async () => {
    const commits = watchCommits(place.path);
    const reader = new DatabaseSync(place.path, { readOnly: true });
    const count = () => Number(reader.prepare("select count(*) as n from scratch").get()!["n"]);
    const seen: number[] = [];
    commits.subscribe(() => seen.push(count()));
    for (let id = 1; id <= 20; id++) {
      db.exec(`insert into scratch values (${id})`);
      expect(await until("the hint", () => seen.at(-1) === id)).toBe(true);
    }
    reader.close();
    commits.close();
  });

  test("doesn't notify of a transaction that was rolled back", async () => {
    const commits = watchCommits(place.path);
    let told = 0;
    commits.subscribe(() => told++);
    db.exec("begin; insert into scratch values (1); rollback");
    await eventLoopTurns(20);
    expect(told).toBe(0);
    commits.close();
  });

  test("ends with its close, after which nothing is opened any more", async () => {
    const before = opened(`${place.path}-wal`);
    const commits = watchCommits(place.path);
    let told = 0;
    commits.subscribe(() => told++);
    expect(opened(`${place.path}-wal`)).toBeGreaterThan(before);
    commits.close();
    commits.close();
    commits.subscribe(() => told++);
    db.exec("insert into scratch values (1)");
    await eventLoopTurns(20);
    expect(told).toBe(0);
    expect(opened(`${place.path}-wal`)).toBe(before);
  });

  test("stays silent where there is nothing to watch", () => {
    const commits = watchCommits(`${place.path}-nowhere`);
    const stop = commits.subscribe(() => {});
    stop();
    expect(readdirSync(place.folder)).not.toContain("flotilla.db-nowhere");
    commits.close();
  });
});
