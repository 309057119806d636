/** What a pod tells of the logs it owns. */
export type LogEvent =
  | { readonly type: "record"; readonly entries: number; readonly durationMs: number }
  /** `owned` is how many it has now. */
  | { readonly type: "log_owned"; readonly owned: number }
  | { readonly type: "log_lost"; readonly owned: number };
