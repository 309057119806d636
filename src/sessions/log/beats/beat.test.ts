import { describe, expect, test } from "vitest";
import { type Beat, decodeBeat, encodeBeat } from "./beat.ts";

const beat: Beat = {
  clusterId: "c1",
  podId: "pod-1",
  host: "machine 7/boot/12",
  release: "1.2.3",
  count: 7,
  isDraining: false,
  logs: [
    { logId: 0, incarnation: "life", term: 3, offset: 12, recordId: "r-12" },
    { logId: 255, incarnation: "life-2", term: 1, offset: 0, recordId: "r-0" },
  ],
  agents: "0123456789abcdef".repeat(4),
  reachesStore: true,
  backlogged: [255],
};
const sent = () => JSON.parse(Buffer.from(encodeBeat(beat)).toString()) as Record<string, unknown>;
const decode = (changes: object) =>
  decodeBeat(Buffer.from(JSON.stringify({ ...sent(), ...changes })));

describe("a beat", () => {
  test("is read as it was sent", () => {
    expect(decodeBeat(encodeBeat(beat))).toEqual(beat);
    const draining = { ...beat, host: null, isDraining: true, logs: [], reachesStore: false };
    const quiet = { ...beat, backlogged: [] };
    expect(decodeBeat(encodeBeat(quiet))).toEqual(quiet);
    expect(decodeBeat(encodeBeat(draining))).toEqual(draining);
  });

  const life = "life";
  test.each<[string, object]>([
    ["of a later form", { v: 2 }],
    ["without a deployment", { cluster: 7 }],
    ["of a pod without a name", { pod: "" }],
    ["of a pod with a name that no pod has", { pod: "a\nb" }],
    ["of a pod with an endless name", { pod: "p".repeat(257) }],
    ["with an endless host", { host: "h".repeat(513) }],
    ["with a host that is none", { host: 7 }],
    ["without a release", { release: "" }],
    ["that doesn't count", { count: 0 }],
    ["that counts beyond what a number holds", { count: 2 ** 53 }],
    ["with half a count", { count: 1.5 }],
    ["in an unknown state", { state: "gone" }],
    ["without logs", { logs: null }],
    ["with logs that are a map", { logs: { 0: [] } }],
    ["with a log that says too little", { logs: [[0, life, 1, 0]] }],
    ["with a log twice", { logs: [0, 0].map((id) => [id, life, 1, 0, "r"]) }],
    ["with a log that there can't be", { logs: [[256, life, 1, 0, "r"]] }],
    ["with a log below the first", { logs: [[-1, life, 1, 0, "r"]] }],
    ["with a life that no subject can hold", { logs: [[0, "a.b", 1, 0, "r"]] }],
    ["with a log in no term", { logs: [[0, life, 0, 0, "r"]] }],
    ["with a log in half a term", { logs: [[0, life, 0.5, 0, "r"]] }],
    ["with a log below its beginning", { logs: [[0, life, 1, -1, "r"]] }],
    ["with a record that has no id", { logs: [[0, life, 1, 0, ""]] }],
    ["with more logs than there can be", { logs: Array(257).fill([0, life, 1, 0, "r"]) }],
    ["with a hash that is none", { agents: "x".repeat(64) }],
    ["with backlogs that are none", { behind: 7 }],
    ["with the backlog of a log that there can't be", { behind: [-1] }],
    ["with more backlogs than logs", { behind: Array(257).fill(0) }],
    ["with an archive that is ahead", { lag: -1 }],
    ["that doesn't know whether it reaches the database", { sql: "yes" }],
  ])("%s is none", (_, changes) => {
    expect(decode({})).toEqual(beat);
    expect(decode(changes)).toBeUndefined();
  });

  test("is none if its bytes are no JSON, no object, no text, or too many", () => {
    for (const text of ["", "{", "null", "7", "[]", '"beat"']) {
      expect(decodeBeat(Buffer.from(text))).toBeUndefined();
    }
    expect(decodeBeat(Uint8Array.of(0xff, 0xfe))).toBeUndefined();
    expect(decode({ more: "x".repeat(300_000) })).toBeUndefined();
  });
});
