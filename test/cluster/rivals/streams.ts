import type { Deployment } from "../../../src/sessions/log/jetstream/streams.ts";

/** The logs that rivals contend for, beside those that pods may have on the same servers. */
export const deployment: Deployment = {
  namespace: "rivals",
  clusterId: "rivals",
  replicas: 3,
  maxLogBytes: 16 * 1_024 * 1_024,
};
export const logs = 2;
