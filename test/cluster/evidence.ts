import type { SessionEvidence } from "../crash/sessions/evidence.ts";
import type { Call } from "../crash/sessions/script.ts";

/** All that is known of a storm over a cluster when it is over. */
export type ClusterEvidence = SessionEvidence & {
  readonly looks: readonly Look[];
  readonly heads: readonly SeenHead[];
  readonly owned: readonly Owned[];
  /** The calls of the agent behind a URL, as it has written them down. */
  readonly calls: readonly Call[];
  /** The most answers of that agent that pods may want at once, all together. */
  readonly callsMax: number;
  readonly replicas: readonly Replica[];
  /** Where logs are on the servers: what the database has of them, and what it should have. */
  readonly archives: Archives | undefined;
};

/** A session's tail, which a reader has asked any of the pods for. */
export type Look = {
  readonly reader: string;
  readonly session: string;
  readonly pod: string;
  readonly askedMs: number;
  readonly atMs: number;
  readonly lastSeq: number;
};

/** The head of a log, as one observer has seen it. Those of a log are in the order that it asked in. */
export type SeenHead = {
  readonly log: number;
  readonly incarnation: string;
  readonly term: number;
  readonly offset: number;
};

/** A pod that says that it owns a log. */
export type Owned = { readonly log: number; readonly term: number; readonly pod: string };

/** A log's stream, read from one server while that was its leader. */
export type Replica = {
  readonly log: number;
  readonly server: string;
  readonly messages: readonly { readonly sequence: number; readonly digest: string }[];
};

/** Gives a line for everything that speaks against a promise. */
export type ClusterCheck = (evidence: ClusterEvidence) => string[];

/** Rows by table and key, each as JSON. */
export type ArchiveTables = Readonly<Record<string, Readonly<Record<string, string>>>>;

/** An archive, and another that was made of the same logs up to the same watermarks. */
export type Archives = {
  readonly live: ArchiveTables;
  readonly rebuilt: ArchiveTables;
  /** Logs that don't have all of their messages any more, of which nothing is rebuilt. */
  readonly trimmed: readonly number[];
  /** Logs that have records behind their watermark. */
  readonly behind: readonly number[];
};
