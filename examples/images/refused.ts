/** What somebody sent can't be used, and trying again would be in vain. */
export class Refused extends Error {
  override readonly name = "Refused";
  readonly reason: RefusedReason;
  constructor(reason: RefusedReason, message: string, options?: ErrorOptions) {
    super(message, options);
    this.reason = reason;
  }
}

export type RefusedReason =
  | "not_found"
  | "too_large"
  | "too_many"
  | "bomb"
  | "bad_path"
  | "escape"
  | "through_link"
  | "duplicate"
  | "special_file"
  | "bad_whiteout"
  | "bad_archive"
  | "bad_manifest";
