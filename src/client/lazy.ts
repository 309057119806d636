/** The part of the client that isn't loaded with the page but right after, once there is a connection. */
export { createAssembler } from "../protocol/assembler/assembler.ts";
export { readEvents } from "./session/reader.ts";
