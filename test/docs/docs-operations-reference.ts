export { defineConfig, sensitive, task } from "flotilla";
export { join } from "node:path";

type Person = { email: string; isStaff: boolean; isOnCall: boolean };
export declare function sessionOf(cookie: string | null): Promise<Person | undefined>;
export { z } from "zod";
