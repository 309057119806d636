import { expect, test } from "vitest";
import { FlotillaError } from "../base/errors.ts";
import { lazyService } from "./lazy-service.ts";
import type { SessionService } from "./service.ts";

test("is made by the first call, which goes out before anything else runs", () => {
  const log: string[] = [];
  const service = lazyService(() => {
    log.push("made");
    return { stop: async () => log.push("stopped") } as unknown as SessionService;
  });
  expect(log).toEqual([]);
  void service.stop("t", "s");
  expect(log).toEqual(["made", "stopped"]);
});

test("where it can't be made, calls reject and followers are ended", async () => {
  const service = lazyService(() => {
    throw new FlotillaError("closed", "the pod was stopped");
  });
  await expect(service.stop("t", "s")).rejects.toMatchObject({ code: "closed" });
  const failed: unknown[] = [];
  const sink = { push: () => true, fail: (error: unknown) => void failed.push(error) };
  const joined = service.join("t", "s", { lastSeq: 0 }, sink);
  await expect(joined.ready).rejects.toMatchObject({ code: "closed" });
  await expect(service.inbox("t", "ada", sink).ready).rejects.toMatchObject({ code: "closed" });
  expect(failed).toMatchObject([{ code: "closed" }, { code: "closed" }]);
});
