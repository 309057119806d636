/** The result of one check. */
export type Check = {
  readonly name: string;
  readonly verdict: "ok" | "warn" | "fail";
  readonly message: string;
};

export function ok(name: string, message: string): Check {
  return { name, verdict: "ok", message };
}

export function warn(name: string, message: string): Check {
  return { name, verdict: "warn", message };
}

export function failed(name: string, message: string): Check {
  return { name, verdict: "fail", message };
}
