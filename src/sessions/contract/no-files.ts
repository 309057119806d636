import type { Files } from "../../files/files.ts";
import type { TurnFiles } from "../turns/files.ts";

/** For conversations without files. */
export const noFiles: TurnFiles & Pick<Files, "keep"> = {
  find: () => Promise.resolve(undefined),
  async *read() {},
  urlFor: () => Promise.resolve(undefined),
  keep: () => Promise.resolve(),
};
