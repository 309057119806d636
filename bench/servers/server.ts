/** A server that was started for this run alone, and is gone with it. */
export type Server = {
  /** Its version and settings, for people. */
  readonly about: string;
  readonly pid: number;
  /** An empty place for one phase. */
  fresh(): Promise<string>;
  /** A place for one phase with what `fill` puts there. It is filled once and copied, where that can be. */
  filled(key: string, fill: (url: string) => Promise<void>): Promise<string>;
  /** A place that is no longer needed. */
  drop(url: string): Promise<void>;
  /** Where the server's time went since it was last asked, if it counts that. */
  busiest?(): Promise<readonly StatementTime[]>;
  stop(): Promise<void>;
};

export type StatementTime = {
  readonly text: string;
  readonly calls: number;
  readonly rows: number;
  readonly ms: number;
};
