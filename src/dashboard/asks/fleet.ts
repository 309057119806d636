import { type ErrorCode, FlotillaError } from "../../base/errors.ts";
import type { bulkSpecs } from "../../server/api/acts/bulk.schema.ts";
import type { deadLetterSpecs } from "../../server/api/dead-letters.schema.ts";
import type { fleetSpecs } from "../../server/api/fleet.schema.ts";
import type { scheduleSpecs } from "../../server/api/schedules.schema.ts";
import type { throttleSpecs } from "../../server/api/throttles.schema.ts";
import type { approvalSpecs } from "../../server/api/waiting/approvals.schema.ts";
import {
  type NewAct,
  type Answered,
  api,
  type HomeFacts,
  part,
  readAnswer,
  type RedriveFacts,
  send,
} from "../api.ts";

/** What the verdict on the fleet looks at. */
export type FleetCounts = Pick<
  NonNullable<HomeFacts["overview"]>,
  "tasks" | "runs" | "sessions" | "pods"
>;
export type SeenThrottle = Pick<
  Answered<typeof throttleSpecs.list>["throttles"][number],
  "name" | "key" | "bound" | "pinned" | "breaker" | "inFlight" | "waiting"
>;
export type ListedSchedule = Pick<
  Answered<typeof scheduleSpecs.list>["schedules"][number],
  "scheduleId" | "name" | "state" | "nextAtMs" | "error"
>;
export type SeenApproval = Answered<typeof approvalSpecs.list>["approvals"][number];
export type SeenBulk = Answered<typeof bulkSpecs.list>["bulks"][number];
export type SeenActs = {
  readonly redrives: readonly RedriveFacts[];
  readonly bulks: readonly SeenBulk[];
};

/** What the overview and the page of pods ask of the server. */
export const fleetAsks = {
  async counts(signal: AbortSignal): Promise<FleetCounts> {
    const { overview, trouble }: HomeFacts = await api.home(signal);
    if (overview) return overview;
    const code = (trouble ?? "unavailable") as ErrorCode;
    throw new FlotillaError(code, "the server can't count right now");
  },
  throttles: async (signal: AbortSignal): Promise<readonly SeenThrottle[]> =>
    (
      await readAnswer<Answered<typeof throttleSpecs.list>>(
        "v1/throttles",
        { limit: 1_000 },
        signal,
      )
    ).throttles,
  schedules: async (signal: AbortSignal): Promise<readonly ListedSchedule[]> =>
    (
      await readAnswer<Answered<typeof scheduleSpecs.list>>(
        "v1/schedules",
        { limit: 1_000 },
        signal,
      )
    ).schedules,
  /** Those with the nearest deadlines. */
  approvals: async (signal: AbortSignal): Promise<readonly SeenApproval[]> =>
    (await readAnswer<Answered<typeof approvalSpecs.list>>("v1/approvals", { limit: 100 }, signal))
      .approvals,
  async acts(signal: AbortSignal): Promise<SeenActs> {
    const [{ redrives }, { bulks }] = await Promise.all([
      readAnswer<Answered<typeof deadLetterSpecs.redrives>>("v1/dlq/redrives", {}, signal),
      readAnswer<Answered<typeof bulkSpecs.list>>("v1/bulk", {}, signal),
    ]);
    return { redrives, bulks };
  },
  drain: (podId: string, act: NewAct) =>
    send<Answered<typeof fleetSpecs.drain>>(`v1/pods/${part(podId)}/drain`, act),
  undrain: (podId: string, act: NewAct) =>
    send<Answered<typeof fleetSpecs.undrain>>(`v1/pods/${part(podId)}/undrain`, act),
};
