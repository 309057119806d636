import { task } from "flotilla";
import { z } from "zod";

/** What both sides know. The web process never imports the code that does the work. */
export const summarize = task("summarize", {
  input: z.object({ text: z.string().min(1) }),
  output: z.object({ words: z.number() }),
});

/** Both open this one; on several machines it would be a Postgres URL. */
export const store = "sqlite:web.db";
