/** What the client loads beside what a page loads at once. */
export { createAssembler } from "../protocol/assembler/assembler.ts";
export { readEvents } from "./session/reader.ts";
