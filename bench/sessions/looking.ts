import process from "node:process";
import { setTimeout as wait } from "node:timers/promises";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import type { Bench, Role } from "../roles.ts";

/** What a process has used by now, all of its threads together. */
export type Look = { readonly cpuMs: number; readonly rssBytes: number };

/** Answers whoever asks, for as long as the process lives. */
export async function answerLooks(bench: Bench): Promise<void> {
  for (;;) {
    await bench.heard("look");
    const { user, system } = process.cpuUsage();
    bench.tell("looked", {
      cpuMs: (user + system) / 1_000,
      rssBytes: process.memoryUsage.rss(),
    } satisfies Look);
  }
}

/** Throws away what is no longer needed, when it is asked to: what is left is what is held. */
export async function answerTidying(bench: Bench): Promise<void> {
  setFlagsFromString("--expose-gc");
  const collect = runInNewContext("gc") as (how: object) => void;
  // As thoroughly as where memory runs out: also pages that are kept for later are given back.
  const how = { type: "major", execution: "sync", flavor: "last-resort" };
  for (;;) {
    await bench.heard("tidy");
    for (let times = 0; times < 3; times++) {
      collect(how);
      await wait(50);
    }
    bench.tell("tidied");
  }
}

async function ask(role: Role, question: string, answer: string): Promise<unknown> {
  const told = role.next(answer);
  role.send(question);
  return (await told) as unknown;
}

export async function lookAt(role: Role): Promise<Look> {
  return (await ask(role, "look", "looked")) as Look;
}

export async function tidy(role: Role): Promise<void> {
  await ask(role, "tidy", "tidied");
}
