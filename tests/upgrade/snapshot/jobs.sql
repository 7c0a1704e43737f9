BEGIN TRANSACTION;
CREATE TABLE waitroom_job_chunks (
	job VARCHAR(22) NOT NULL, 
	fence BIGINT NOT NULL, 
	number INTEGER NOT NULL, 
	data BLOB NOT NULL, 
	PRIMARY KEY (job, fence, number)
);
INSERT INTO "waitroom_job_chunks" VALUES('2wTeM0dLHrDDXuqRqbgjKg',1795384770889884,0,X'7B226E756D626572223A20307D');
CREATE TABLE waitroom_jobs (
	id VARCHAR(22) NOT NULL, 
	owner VARCHAR(48) NOT NULL, 
	target VARCHAR(48) NOT NULL, 
	kind VARCHAR(8) NOT NULL, 
	created_ms BIGINT NOT NULL, 
	expires_ms BIGINT NOT NULL, 
	queue_order BIGINT NOT NULL, 
	state VARCHAR(16) NOT NULL, 
	class_name VARCHAR(48) NOT NULL, 
	idempotency_key VARCHAR(128), 
	fingerprint VARCHAR(64) NOT NULL, 
	method VARCHAR(16) NOT NULL, 
	path TEXT NOT NULL, 
	"query" TEXT NOT NULL, 
	headers TEXT NOT NULL, 
	callback_url TEXT, 
	not_before_ms BIGINT, 
	called_ms BIGINT, 
	started_ms BIGINT, 
	ended_ms BIGINT, 
	attempts INTEGER NOT NULL, 
	failures INTEGER NOT NULL, 
	fence BIGINT NOT NULL, 
	error TEXT NOT NULL, 
	status INTEGER, 
	result_headers TEXT NOT NULL, 
	result_size BIGINT NOT NULL, 
	read_ms BIGINT, 
	callback_ms BIGINT, 
	callback_tries INTEGER NOT NULL, 
	body BLOB NOT NULL, 
	PRIMARY KEY (id)
);
INSERT INTO "waitroom_jobs" VALUES('2wTeM0dLHrDDXuqRqbgjKg','service','images','offline',1795384767960,1795643971042,1795384767969800,'completed','','images-0','b3fcacd91411e92558e07c0ab16df0d4bc84bd36da23db1b97e9a733b46db507','POST','','','{"Content-Type":"application/json"}',NULL,NULL,NULL,1795384770889,1795384771042,1,0,1795384770889884,'',200,'{"server":"BaseHTTP/0.6 Python/3.11.7","date":"Sun, 22 Nov 2026 21:59:31 GMT"}',13,NULL,NULL,0,X'7B226E756D626572223A20307D');
INSERT INTO "waitroom_jobs" VALUES('7m8nArXNf1Cuu4bJRndfAg','service','images','offline',1795384771457,1795395571457,1795384771459576,'pending','','images-1','e760864c83037abd227654e0b14a328fd71e7fcdcb62ca1475db334b45b95a20','POST','','','{"Content-Type":"application/json"}',NULL,NULL,NULL,NULL,NULL,0,0,0,'',NULL,'{}',0,NULL,NULL,0,X'7B226E756D626572223A20317D');
INSERT INTO "waitroom_jobs" VALUES('o3x90IaDVrIhjAZYLxn2IA','service','images','offline',1795384771633,1795395571633,1795384771633872,'pending','','images-2','36c50a7eaa8e4b431b994d47f0d4d4ec44af7d650dda371b734ba418b6e8094c','POST','','','{"Content-Type":"application/json"}',NULL,NULL,NULL,NULL,NULL,0,0,0,'',NULL,'{}',0,NULL,NULL,0,X'7B226E756D626572223A20327D');
INSERT INTO "waitroom_jobs" VALUES('2w86Q6gHNhRLnl96mHNAQw','service','images','offline',1795384771649,1795395571649,1795384771650384,'pending','','images-3','9d5467e79991885797707c353f9a034c10580d90797b2d43403c274d4bc9b0d1','POST','','','{"Content-Type":"application/json"}',NULL,NULL,NULL,NULL,NULL,0,0,0,'',NULL,'{}',0,NULL,NULL,0,X'7B226E756D626572223A20337D');
INSERT INTO "waitroom_jobs" VALUES('f7xDGCciR9CT2WeiaQut8g','service','reports','online',1795384771703,1795395571703,1795384771708928,'called','','reports-0','81962acd3e6bb92c4781ef8081e7b1cde517b599139a96fe488861db4796d622','GET','','','{}',NULL,NULL,1795384771762,NULL,NULL,0,0,1795384771762656,'',NULL,'{}',0,NULL,NULL,0,X'');
INSERT INTO "waitroom_jobs" VALUES('NdUrC0ZOY3wAHzg5nKDebA','service','reports','online',1795384771766,1795395571766,1795384771770544,'pending','','reports-1','81962acd3e6bb92c4781ef8081e7b1cde517b599139a96fe488861db4796d622','GET','','','{}',NULL,NULL,NULL,NULL,NULL,0,0,0,'',NULL,'{}',0,NULL,NULL,0,X'');
CREATE TABLE waitroom_jobs_version (
	version_num VARCHAR(32) NOT NULL
);
INSERT INTO "waitroom_jobs_version" VALUES('0001');
CREATE TABLE waitroom_targets (
	name VARCHAR(48) NOT NULL, 
	settings TEXT NOT NULL, 
	changed_ms BIGINT NOT NULL, 
	PRIMARY KEY (name)
);
INSERT INTO "waitroom_targets" VALUES('images','{"paused": true}',1795384771365);
CREATE INDEX ix_waitroom_jobs_line ON waitroom_jobs (target, state, queue_order, id);
CREATE INDEX ix_waitroom_jobs_expires ON waitroom_jobs (state, expires_ms);
CREATE INDEX ix_waitroom_jobs_owner ON waitroom_jobs (owner, created_ms, id);
CREATE INDEX ix_waitroom_jobs_created ON waitroom_jobs (created_ms, id);
CREATE INDEX ix_waitroom_jobs_target ON waitroom_jobs (target, created_ms, id);
CREATE INDEX ix_waitroom_jobs_ended ON waitroom_jobs (target, ended_ms, state, created_ms, started_ms);
CREATE INDEX ix_waitroom_jobs_callback ON waitroom_jobs (callback_ms);
CREATE UNIQUE INDEX ux_waitroom_jobs_key ON waitroom_jobs (owner, idempotency_key);
COMMIT;
