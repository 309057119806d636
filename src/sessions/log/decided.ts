/** Of what no session could take, whatever has become of it. */
export const neverStored = [
  "payload_not_storable",
  "payload_too_deep",
  "payload_too_large",
] as const;

/** What an owner decides once it has looked whether the same was stored before. */
export const decided = [
  "conflict",
  "forbidden",
  "invalid_input",
  "not_found",
  ...neverStored,
] as const;
