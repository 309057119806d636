import type { Flotilla } from "flotilla";

export { defineConfig, sensitive, task } from "flotilla";
export { join } from "node:path";
export { z } from "zod";

type Person = { email: string; isStaff: boolean; isOnCall: boolean };
export declare function sessionOf(cookie: string | null): Promise<Person | undefined>;
export declare const flotilla: Flotilla;
export declare const taskId: string;
