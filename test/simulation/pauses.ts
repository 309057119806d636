/**
 * Pauses: what is known to be paused isn't claimed, and what is known to be resumed isn't held back. Known
 * is what was answered, unless the opposite was asked for meanwhile, or later.
 */
import { allNames } from "../../src/protocol/task-options.ts";
import { listPauses } from "../../src/tasks/sql/limits.ts";
import type { World } from "./world.ts";

export type Wish = "pause" | "resume";

/** Something that an operator has asked for, with its place among all that was asked and answered. */
type Asked = {
  readonly target: string;
  readonly wish: Wish;
  readonly begun: number;
  ended: number;
  answered: boolean;
};

export type Pauses = {
  /** Notes that something is asked for. What it returns is told how that went. */
  ask(wish: Wish, target: string): (answered: boolean) => void;
  /** Why no pod may claim tasks of this name now, if that is known. */
  pausedBy(name: string): string | undefined;
};

const lookEveryMs = 700;

export function createPauses(world: World): Pauses {
  const { scheduler, violate } = world;
  const asked: Asked[] = [];
  let place = 0;

  /** Whether this was done, and no opposite request could have come after it. */
  const isKnown = (target: string, wish: Wish): boolean => {
    let since = -1;
    for (const each of asked) {
      if (each.target === target && each.wish === wish && each.answered) since = each.begun;
    }
    return (
      since >= 0 &&
      asked.every((each) => each.target !== target || each.wish === wish || each.ended < since)
    );
  };

  const look = async (): Promise<void> => {
    const paused = (await world.store.database.read(listPauses())).map((row) =>
      String(row["name"]),
    );
    for (const { target } of asked) {
      if (paused.includes(target) && isKnown(target, "resume")) {
        violate("pause", `${target} was resumed, and is paused`);
      }
      if (!paused.includes(target) && isKnown(target, "pause")) {
        violate("pause", `${target} was paused, and isn't`);
      }
    }
  };
  const watch = () => {
    if (asked.length > 0 && world.violations.length === 0) void look();
    scheduler.after(lookEveryMs, watch);
  };
  watch();

  return {
    ask(wish, target) {
      const one: Asked = { target, wish, begun: place++, ended: Infinity, answered: false };
      asked.push(one);
      return (answered) => {
        one.ended = place++;
        one.answered = answered;
        scheduler.note(`${wish} of ${target} ${answered ? "is done" : "isn't known"}`);
      };
    },
    pausedBy: (name) => [allNames, name].find((target) => isKnown(target, "pause")),
  };
}
