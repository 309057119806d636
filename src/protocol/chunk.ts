/** One step of an answer that is being made, as the AI SDK streams it. What we don't know passes through. */
export type Chunk = { readonly type: string; readonly [field: string]: unknown };
