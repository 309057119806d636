import type { NewWake } from "flotilla/client";

type RemindTime = {
  readonly name: string;
  /** What a wake has for it, asked at `now`. */
  wake(now: Date): Pick<NewWake, "at" | "afterMs" | "cron" | "timezone">;
};

const hourMs = 3_600_000;
const morning = 9;

/** When one can be reminded. Mornings are those of the reader, wherever the server is. */
export const remindTimes: readonly RemindTime[] = [
  { name: "In a minute", wake: () => ({ afterMs: 60_000 }) },
  { name: "In an hour", wake: () => ({ afterMs: hourMs }) },
  {
    name: "Tomorrow at 9",
    wake: (now) => ({
      at: new Date(now.getFullYear(), now.getMonth(), now.getDate() + 1, morning).getTime(),
    }),
  },
  {
    name: "Every day at 9",
    wake: () => ({
      cron: `0 ${morning} * * *`,
      timezone: Intl.DateTimeFormat().resolvedOptions().timeZone,
    }),
  },
];
