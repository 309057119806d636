import * as pods from "../../src/pods/sql.ts";
import { entry } from "./audit.ts";
import { noStatement, type RoomStatements, sqlFile } from "./examples.ts";

const silent = { podId: "pod-2", beat: 4, birthMs: 1, status: "up", passes: 0 } as const;

export const podStatements: RoomStatements = {
  "src/pods/sql.ts": sqlFile(pods, {
    beat: () => pods.beat("pod-1", "{}", 7, { count: 2, host: "host-1", pulse: "{}" }),
    readPods: () => [pods.readPods(), pods.readPods(["throttle_report", "session_log"])],
    toFilledTables: noStatement,
    toPodSeen: noStatement,
    markDown: () => pods.markDown([silent]),
    updateIdle: () => pods.updateIdle("pod-1", true),
    updatePodState: () => pods.updatePodState("pod-1", "{}"),
    markLeft: () => pods.markLeft("pod-1"),
    finishPass: () => pods.finishPass("pod-1"),
    prunePods: () => pods.prunePods(60_000),
    pulsesOf: () => pods.pulsesOf(["pod-1", "pod-2"]),
    knownPods: () => pods.knownPods(),
    livePods: () => pods.livePods(),
    changeDrain: () => [
      ...pods.changeDrain("pod-1", true, entry),
      ...pods.changeDrain("pod-1", false, entry),
    ],
    podAges: () => pods.podAges(),
    latestPods: () => pods.latestPods(100),
    listBriefPods: () => pods.listBriefPods(),
    metadataOf: () => pods.metadataOf(["pod-1", "pod-2"]),
    readPulsesOfAll: () => pods.readPulsesOfAll(),
    listPods: () => pods.listPods(),
  }),
};
