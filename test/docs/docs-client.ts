import type { ReactNode } from "react";

export declare const url: string;
export declare function getToken(): Promise<string>;
export declare function render(state: object): void;
export declare function show(progress: unknown): void;
export declare function Talk(props: { id: string }): ReactNode;
