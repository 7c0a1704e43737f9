// Loads data repeatedly while a view is open and visible, and shows if the replica does not answer.

import { clock, put } from './draw.js';

const LOOK_MS = 2000;

export class Watch {
  // `root` has an element .away-note. `look` throws if the replica does not answer.
  constructor(root, look) {
    Object.assign(this, { root, look, isOpen: false, knownAt: 0 });
    this.note = root.querySelector('.away-note');
    document.addEventListener('visibilitychange', () => {
      if (!document.hidden) this.soon();
    });
  }

  // Starts again, because the view shows something else from now on.
  open() {
    this.isOpen = true;
    this.knownAt = 0;
    this.soon();
  }

  close() {
    this.isOpen = false;
    this.turn = null;
    clearTimeout(this.timer);
  }

  soon(ms = 0) {
    clearTimeout(this.timer);
    if (this.isOpen) this.timer = setTimeout(() => this.run(), ms);
  }

  async run() {
    if (document.hidden) return; // until the page is visible again
    const turn = (this.turn = {});
    let error = null;
    try {
      await this.look();
    } catch (problem) {
      error = problem;
    }
    if (turn !== this.turn) return; // the view was closed, or started again, meanwhile
    if (!error) this.knownAt = Date.now();
    else
      put(
        this.note,
        `${error.status === 404 || error.status === 422 ? error.message : (error.title ?? error.message)}. ${this.knownAt ? `What is below is old, since ${clock(this.knownAt)}. ` : ''}Trying again …`,
      );
    this.note.hidden = !error;
    this.root.classList.toggle('away', Boolean(error));
    this.soon(LOOK_MS);
  }
}
